"""NgramDrafter: the continuation of the longest earlier match."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from structspec.config import SpeculativeConfig
from structspec.drafters.ngram import NgramDrafter, TokenBuffer, find_continuation
from structspec.vocabulary import Vocabulary
from tests.drafters.toy import batch_of, start

VOCABULARY = Vocabulary.bytes()
CONFIG = SpeculativeConfig(prompt_lookup_min=2, prompt_lookup_max=4)


def draft_text(prompt, written, **params):
    request = start(VOCABULARY, prompt=prompt, written=written.encode(), **params)
    return bytes(NgramDrafter(CONFIG).propose(batch_of(request, num_draft_slots=5)).token_ids[0])


@pytest.mark.parametrize(
    ("prompt", "written", "draft"),
    [
        pytest.param("hello world", "hel", b"lo wo", id="goes-on-from-the-prompt"),
        pytest.param("xyz", "abab", b"ab", id="goes-on-from-the-output"),
        pytest.param("abc1 abc2 abc3 ", "abc", b"3 abc", id="latest-of-equally-long-matches"),
        pytest.param("1abcX 2bcY", "1abc", b"X 2bc", id="longer-match-beats-a-later-one"),
        pytest.param("abc abd", "zb", b"", id="a-match-of-one-token-is-too-short"),
        pytest.param("abc", "xyz", b"", id="no-match"),
    ],
)
def test_what_is_drafted(prompt, written, draft):
    assert draft_text(prompt, written) == draft


def slow_continuation(tokens, min_match, max_match):
    for length in range(max_match, min_match - 1, -1):
        for start_of_match in range(len(tokens) - length - 1, -1, -1):
            if tokens[start_of_match : start_of_match + length] == tokens[-length:]:
                return start_of_match + length
    return 0


@given(
    st.lists(st.integers(0, 2), max_size=24),
    st.integers(1, 3),
    st.integers(0, 3),
)
def test_the_search_follows_its_definition(tokens, min_match, extra):
    array = np.array(tokens, np.int32)
    expected = slow_continuation(tokens, min_match, min_match + extra)
    assert find_continuation(array, min_match, min_match + extra) == expected


def test_it_works_across_steps_and_forgets_requests_that_left():
    drafter = NgramDrafter(CONFIG)
    first, second = (start(VOCABULARY, prompt="hello world", request_id=i) for i in (0, 1))
    for text in "hel", "lo w":
        first.token_ids += text.encode()
        drafter.propose(batch_of(first, second))
    assert bytes(drafter.propose(batch_of(first)).token_ids[0]) == b"orldhello w"
    assert len(drafter._buffers) == 1


@pytest.mark.parametrize(
    ("slots", "is_sampled", "speculative"), [(0, True, True), (5, False, True), (5, True, False)]
)
def test_nothing_is_drafted_without_slots_or_wish(slots, is_sampled, speculative):
    request = start(VOCABULARY, prompt="hello hel", speculative=speculative)
    batch = batch_of(request, num_draft_slots=slots, is_sampled=is_sampled)
    assert NgramDrafter(CONFIG).propose(batch).token_ids == [[]]


def test_the_buffer_holds_known_tokens_and_draft_however_it_grows():
    buffer, known = TokenBuffer(), []
    for step in range(60):
        known += range(step * 10, step * 10 + step % 12)
        draft = [7] * (step % 5)
        assert buffer.view(known, draft).tolist() == known + draft
