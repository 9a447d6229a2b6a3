"""A glimpse is what would be drafted, told without a step."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.config import SpeculativeConfig
from structspec.drafters.base import Foresighted
from structspec.drafters.custom import CheckedDrafter
from structspec.drafters.registry import make_drafter
from structspec.request import RequestStatus
from structspec.speculation import Speculation
from structspec.vocabulary import Vocabulary
from tests.drafters.toy import batch_of, start

VOCABULARY = Vocabulary.bytes()
METHODS = ("hybrid", "ngram", "suffix", "prediction")
LIMIT = 5


def drafter_of(method):
    return make_drafter(VOCABULARY, SpeculativeConfig(method=method))


@settings(max_examples=40, deadline=None)
@given(
    texts=st.lists(st.text("ab", min_size=1, max_size=30), min_size=1, max_size=4),
    predicted=st.none() | st.text("ab", min_size=1, max_size=20),
    method=st.sampled_from(METHODS),
)
def test_a_glimpse_is_what_is_drafted_then(texts, predicted, method):
    drafter, other = drafter_of(method), drafter_of(method)
    requests = [
        start(VOCABULARY, prompt="xyz", written=text.encode(), request_id=index)
        for index, text in enumerate(texts)
    ]
    if predicted is not None:
        requests[0].prediction_token_ids = list(predicted.encode())
    glimpses = drafter.glimpse(requests, LIMIT)
    batch = batch_of(*requests, num_draft_slots=LIMIT)
    drafts = other.propose(batch).token_ids
    assert [list(glimpse.token_ids) for glimpse in glimpses] == [list(draft) for draft in drafts]
    again = drafter.propose(batch).token_ids  # glimpses leave nothing behind that changes a draft
    assert list(map(list, again)) == list(map(list, drafts))


def test_a_glimpse_says_how_long_its_match_is():
    texts = ["abc1abc", "ab1abc", "ab1b", "abc"]
    requests = [
        start(VOCABULARY, prompt="-", written=text.encode(), request_id=index)
        for index, text in enumerate(texts)
    ]
    glimpses = drafter_of("ngram").glimpse(requests, LIMIT)
    assert [glimpse.kind for glimpse in glimpses] == [("ngram", n) for n in (3, 0, 1, 0)]
    assert [bytes(glimpse.token_ids) for glimpse in glimpses] == [b"1abc", b"", b"1b", b""]


def test_what_a_request_may_not_be_drafted_by_is_no_glimpse():
    request = start(
        VOCABULARY,
        prompt="hello world ",
        written=b"hel",
        speculation=Speculation(drafters=("forced", "prediction")),
    )
    drafter = drafter_of("hybrid")
    assert not drafter.glimpse([request], LIMIT)[0].token_ids
    request.prediction_token_ids = list(b"hello")
    glimpse = drafter.glimpse([request], LIMIT)[0]
    assert (glimpse.kind, bytes(glimpse.token_ids)) == (("prediction", 0), b"lo")


@pytest.mark.parametrize("method", ["hybrid", "ngram"])
@pytest.mark.parametrize("may_guess", [True, False])
def test_finished_requests_are_forgotten_whether_or_not_anything_is_guessed(method, may_guess):
    rows = None if may_guess or method == "ngram" else 0
    drafter = make_drafter(VOCABULARY, SpeculativeConfig(method=method, max_guess_rows=rows))
    index = (drafter._ngram if method == "hybrid" else drafter)._index
    for number in range(3):
        request = start(VOCABULARY, prompt="hello hel", request_id=number)
        drafter.glimpse([request], LIMIT)
        assert index.num_requests == 1
        request.status = RequestStatus.FINISHED
        other = start(VOCABULARY, prompt="hello hel", request_id=99)
        drafter.propose(batch_of(other, num_draft_slots=0))
        assert index.num_requests == 0


@pytest.mark.parametrize("method", METHODS)
def test_these_can_look_ahead(method):
    assert isinstance(drafter_of(method), Foresighted)


def test_a_class_of_the_users_own_is_asked_for_drafts_alone():
    assert not issubclass(CheckedDrafter, Foresighted)
