"""NgramDrafter: the continuation of the longest earlier match."""

import pytest

from structspec.config import SpeculativeConfig
from structspec.drafters.ngram import NgramDrafter
from structspec.request import RequestStatus
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


def test_all_requests_of_a_step_are_answered_as_each_alone():
    texts = [("hello world", "hel"), ("xyz", "abab"), ("abc", "xyz"), ("1abcX 2bcY", "1abc")] * 20
    requests = [
        start(VOCABULARY, prompt=prompt, written=written.encode(), request_id=index)
        for index, (prompt, written) in enumerate(texts)
    ]
    drafted = NgramDrafter(CONFIG).propose(batch_of(*requests, num_draft_slots=5)).token_ids
    assert [bytes(draft) for draft in drafted] == [draft_text(*text) for text in texts]


def test_a_request_is_known_while_it_takes_part_in_no_step_and_until_it_is_finished():
    drafter = NgramDrafter(CONFIG)
    first, second = (start(VOCABULARY, prompt="hello world", request_id=i) for i in (0, 1))
    for text in "hel", "lo w":
        first.token_ids += text.encode()
        drafter.propose(batch_of(first, second))
    assert bytes(drafter.propose(batch_of(first)).token_ids[0]) == b"orldhello w"
    assert drafter._index.num_requests == 2
    second.status = RequestStatus.FINISHED
    drafter.propose(batch_of(first))
    assert drafter._index.num_requests == 1


@pytest.mark.parametrize(
    ("slots", "is_sampled", "speculative"), [(0, True, True), (5, False, True), (5, True, False)]
)
def test_nothing_is_drafted_without_slots_or_wish(slots, is_sampled, speculative):
    request = start(VOCABULARY, prompt="hello hel", speculative=speculative)
    batch = batch_of(request, num_draft_slots=slots, is_sampled=is_sampled)
    assert NgramDrafter(CONFIG).propose(batch).token_ids == [()]
