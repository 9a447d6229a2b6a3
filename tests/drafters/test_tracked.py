"""Matchers are left where they were, whatever goes wrong in them while they are drafted for."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.config import SpeculativeConfig
from structspec.drafters.forced import ForcedDrafter
from structspec.drafters.hybrid import HybridDrafter
from structspec.drafters.tracked import TrackedMatcher, left_in_place, track
from structspec.errors import EngineError
from structspec.grammars.base import DeadEnd, MatcherFailed
from structspec.vocabulary import Vocabulary
from tests.drafters.toy import TextsMatcher, batch_of, start, words_vocabulary

CONFIG = SpeculativeConfig(num_speculative_tokens=8)
TEXTS = ['{"name": "Ada", "age": 36}', '{"name": "Ada", "age": 41}', '{"name": "Bob"}']
PROMPT = 'Ada is 36. {"name": "Ada", "age": 36}'


class Trap(TextsMatcher):
    """Fails in its n-th call from now on, once; what it was asked has not happened then."""

    def __init__(self, vocabulary: Vocabulary, texts: list[bytes]) -> None:
        super().__init__(vocabulary, texts)
        self.num_left, self.error = -1, MatcherFailed("limit reached")

    def fails(self) -> None:
        self.num_left -= 1
        if self.num_left == 0:
            raise self.error

    def fill(self, *args):
        self.fails()
        return super().fill(*args)

    def accept(self, token_id):
        self.fails()
        return super().accept(token_id)

    def forced(self, limit):
        self.fails()
        return super().forced(limit)

    def forced_tokens(self, limit):
        self.fails()
        left = [text[len(self.written) :] for text in self.texts if text.startswith(self.written)]
        return [] if len(left) > 1 else [*left[0][:limit]]


def make(vocabulary, written, error=None, num_left=-1, request_id=0):
    request = start(vocabulary, TEXTS, prompt=PROMPT, request_id=request_id)
    matcher = Trap(vocabulary, [text.encode() for text in TEXTS])
    request.matcher = matcher
    for token_id in vocabulary.encode_text(written):
        assert matcher.accept(token_id)
        request.token_ids.append(token_id)
    request.prediction_token_ids = vocabulary.encode_text(TEXTS[0])
    matcher.num_left, matcher.error = num_left, error
    return request


def in_haste(vocabulary):
    drafter = HybridDrafter(vocabulary, CONFIG, lambda num_rows: 0.0)
    drafter._haste._walk_seconds = 1.0
    return drafter


DRAFTERS = {
    "walks": lambda vocabulary: HybridDrafter(vocabulary, CONFIG),
    "in haste": in_haste,
    "forced": ForcedDrafter,
}
VOCABULARIES = {"bytes": Vocabulary.bytes(), "words": words_vocabulary('": "', "Ada", "name")}
ERRORS = (MatcherFailed("limit reached"), DeadEnd("nowhere"), KeyError("x"), ValueError("why"))


@pytest.mark.parametrize("name", DRAFTERS)
@settings(max_examples=150, deadline=None)
@given(
    kind=st.sampled_from(sorted(VOCABULARIES)),
    length=st.integers(0, len(TEXTS[0])),
    num_left=st.integers(1, 60),
    error=st.sampled_from(ERRORS),
)
def test_a_failure_in_one_matcher_costs_one_draft_at_most(name, kind, length, num_left, error):
    vocabulary = VOCABULARIES[kind]
    trapped = make(vocabulary, TEXTS[0][:length], error, num_left)
    healthy = make(vocabulary, TEXTS[0][:length], request_id=1)
    alone = make(vocabulary, TEXTS[0][:length], request_id=2)
    before = list(trapped.matcher.token_ids)
    drafted, others = DRAFTERS[name](vocabulary).propose(batch_of(trapped, healthy)).token_ids
    assert trapped.matcher.token_ids == before and trapped.error is None
    assert others == DRAFTERS[name](vocabulary).propose(batch_of(alone)).token_ids[0]
    has_failed = trapped.matcher.num_left <= 0
    assert len(drafted) <= len(others) if has_failed else drafted == others


def test_a_matcher_that_cannot_be_put_back_fails_its_own_request():
    request = make(Vocabulary.bytes(), "")

    def fail(num_tokens):
        raise ValueError("gone")

    request.matcher.rollback = fail
    matcher = track(request)
    with left_in_place(request, matcher):
        assert matcher.accept(ord("{"))
    assert isinstance(request.error, EngineError) and "gone" in str(request.error)


def test_what_is_no_fault_of_the_matcher_passes_and_leaves_it_in_place():
    request = make(Vocabulary.bytes(), "")
    matcher = track(request)
    with pytest.raises(KeyboardInterrupt), left_in_place(request, matcher):
        assert matcher.accept(ord("{"))
        raise KeyboardInterrupt
    assert request.matcher.token_ids == []


def test_a_tracked_matcher_is_tracked_once():
    request = make(Vocabulary.bytes(), "")
    request.matcher = tracked = TrackedMatcher(request.matcher)
    assert track(request) is tracked
    with left_in_place(request, tracked):
        assert tracked.accept(ord("{"))
        with left_in_place(request, tracked):
            assert tracked.accept(ord('"'))
        assert tracked.inner.written == b"{"
    assert tracked.inner.written == b""
