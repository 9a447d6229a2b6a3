"""HybridDrafter: forced text and prompt lookup in turn, never beyond what the grammar takes."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.config import SpeculativeConfig
from structspec.drafters.forced import ForcedDrafter
from structspec.drafters.hybrid import HybridDrafter
from structspec.drafters.ngram import NgramDrafter
from structspec.grammars.base import MatcherFailed
from structspec.vocabulary import Vocabulary
from tests.drafters.toy import batch_of, start, words_vocabulary, write

BYTES = Vocabulary.bytes()
STOP = 256
CONFIG = SpeculativeConfig(prompt_lookup_min=2, prompt_lookup_max=4)


def draft(request, num_draft_slots=15, vocabulary=BYTES):
    batch = batch_of(request, num_draft_slots=num_draft_slots)
    result = HybridDrafter(vocabulary, CONFIG).propose(batch)
    return result.token_ids[0], sum(result.is_forced[0])


def constrained(texts, prompt="", written="", **params):
    return start(BYTES, texts, prompt=prompt, written=written.encode(), **params)


def test_forced_text_then_lookup_then_forced_text_then_the_end():
    texts = ['{"name": "Ada"}', '{"name": "Bob"}']
    request = constrained(texts, prompt='x: "Ada", y', written="{")
    token_ids, num_forced = draft(request, 40)
    assert bytes(token_ids[:-1]) == b'"name": "Ada"}'
    assert token_ids[-1] == STOP
    assert num_forced == len('"name": "') + len("}") + 1  # and the end


MERGING = words_vocabulary('{"', "paid", '":', " false", " true", ', "', "due")
RECORDS = [
    '{{"due": {}, "paid": {}, "due": {}, "paid": {}'.format(*values)
    for values in itertools.product(("false", "true"), repeat=4)
]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        pytest.param("", b'{"due": ', id="nobody-knows-what-follows"),
        pytest.param(
            '{"due": true, "paid": true, "due": false',
            b', "paid": true',
            id="it-was-written-before",
        ),
    ],
)
def test_the_last_forced_token_is_left_to_a_sure_draft_that_it_merges_with(written, expected):
    request = start(MERGING, RECORDS, written=MERGING.encode_text(written))
    token_ids, _ = draft(request, vocabulary=MERGING)
    assert MERGING.decode_bytes(token_ids) == expected
    assert request.matcher.token_ids == MERGING.encode_text(written)


def test_lookup_is_cut_at_the_first_token_the_grammar_refuses():
    # Behind `ab` the prompt has `cde`, the grammar only `cdx` and `cdy`.
    request = constrained(["abcdx", "abcdy"], prompt="-abcde", written="ab")
    request.matcher.forced = lambda limit: b""
    token_ids, num_forced = draft(request)
    assert (bytes(token_ids), num_forced) == (b"cd", 0)


def test_no_more_than_the_slots():
    for slots in range(8):
        token_ids, _ = draft(constrained(["abcdef"]), slots)
        assert bytes(token_ids) == b"abcdef"[:slots] if slots < 7 else token_ids[-1] == STOP


def test_a_stop_token_is_drafted_only_where_nothing_else_is_legal():
    assert draft(constrained(["ab"], written="ab")) == ([STOP], 1)
    assert draft(constrained(["ab", "abc", "abd"], written="ab")) == ([], 0)


def test_nothing_is_drafted_behind_a_stop_token():
    ended = constrained(["ab"], written="ab")
    write(ended, [STOP])
    assert draft(ended)[0] == [STOP]  # the only legal token, and one of them
    free = start(BYTES, prompt="ab", request_id=1)
    free.token_ids = [*b"ab", STOP, *b"cdab"]
    assert draft(free) == ([STOP], 0)


def test_unconstrained_requests_are_drafted_by_lookup_alone():
    request = start(BYTES, prompt="hello world", written=b"hel")
    assert draft(request, 5) == (list(b"lo wo"), 0)


@pytest.mark.parametrize("texts", [None, ["abcabc"]])
def test_requests_that_do_not_want_drafts_get_none(texts):
    request = constrained(texts, prompt="abcabc", written="ab", speculative=False)
    assert draft(request) == ([], 0)


def test_requests_that_are_not_sampled_get_none_and_all_drafts_are_one_hot():
    request = constrained(["abc"])
    result = HybridDrafter(BYTES, CONFIG).propose(batch_of(request, is_sampled=False))
    assert (result.token_ids, result.probs, result.is_forced) == ([[]], [None], [[]])


def test_a_matcher_that_fails_costs_its_own_request_the_draft_and_no_other():
    def fail(token_id):
        raise MatcherFailed("limit reached")

    broken, healthy = constrained(["abc"]), constrained(["abc"], request_id=1)
    broken.matcher.accept = fail
    result = HybridDrafter(BYTES, CONFIG).propose(batch_of(broken, healthy))
    assert result.token_ids == [[], [*b"abc", STOP]]


def in_haste(vocabulary, config=CONFIG):
    """A drafter that never has time for walks."""
    drafter = HybridDrafter(vocabulary, config, lambda num_rows: 0.0)
    drafter._haste._walk_seconds = 1.0
    return drafter


VOCABULARIES = {"bytes": BYTES, "words": words_vocabulary("ab", "ba", "aab", "bbb")}
TEXTS = st.lists(st.text("ab", min_size=1, max_size=9), min_size=1, max_size=4)


@pytest.mark.parametrize("kind", VOCABULARIES)
@settings(deadline=None)
@given(texts=TEXTS, prompt=st.text("ab", max_size=9), slots=st.integers(0, 8), data=st.data())
def test_laws_of_every_drafter(kind, texts, prompt, slots, data):
    vocabulary = VOCABULARIES[kind]
    text = data.draw(st.sampled_from(texts))
    written = text[: data.draw(st.integers(0, len(text)))].encode()
    request = start(vocabulary, texts, prompt=prompt, written=written)
    matcher, batch = request.matcher, batch_of(request, num_draft_slots=slots)
    before = list(matcher.token_ids)

    for drafter in (
        HybridDrafter(vocabulary, CONFIG),
        in_haste(vocabulary),
        ForcedDrafter(vocabulary),
        NgramDrafter(CONFIG),
    ):
        drafted = drafter.propose(batch).token_ids[0]
        assert matcher.token_ids == before, "matchers are left where they were"
        assert len(drafted) <= slots
        assert drafter.propose(batch).token_ids[0] == drafted, "proposing changes nothing"
        if not isinstance(drafter, NgramDrafter):
            assert all(matcher.accept(token_id) for token_id in drafted)
            matcher.rollback(len(drafted))


def test_several_stop_tokens_are_still_nothing_but_the_end():
    tokens = (b"a", b"b", None, None)
    vocabulary = Vocabulary(tokens, (2, 3), lambda text: ["ab".index(c) for c in text])
    request = start(vocabulary, ["ab"], written=[0, 1])
    assert draft(request, vocabulary=vocabulary) == ([2], 1)
