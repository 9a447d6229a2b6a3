"""PredictionDrafter: where an output is in its prediction, and what follows there."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.drafters import prediction as module
from structspec.drafters.prediction import PredictionDrafter
from structspec.request import RequestStatus
from structspec.vocabulary import Vocabulary
from tests.drafters.replay import replay
from tests.drafters.toy import batch_of, start

VOCABULARY = Vocabulary.bytes()


def drafter_of(predicted):
    return PredictionDrafter(lambda request: list(predicted))


def request_of(written=(), request_id=0, **params):
    return start(VOCABULARY, prompt="?", written=written, request_id=request_id, **params)


def draft_text(predicted, written, limit=3):
    batch = batch_of(request_of(written), num_draft_slots=limit)
    return bytes(drafter_of(predicted).propose(batch).token_ids[0])


@pytest.mark.parametrize(
    ("written", "draft"),
    [
        pytest.param(b"", b"abc", id="from-the-start"),
        pytest.param(b"ab", b"cde", id="as-predicted"),
        pytest.param(b"abX", b"", id="nothing-behind-a-token-that-is-not-in-it"),
        pytest.param(b"abXd", b"efg", id="one-token-replaced"),
        pytest.param(b"abXc", b"def", id="one-token-put-in"),
        pytest.param(b"abd", b"efg", id="one-token-left-out"),
        pytest.param(b"abcdefghijkl", b"", id="to-its-end"),
        pytest.param(b"abcdefghijklXc", b"def", id="back-to-where-it-was"),
    ],
)
def test_what_is_drafted(written, draft):
    assert draft_text(b"abcdefghijkl", written) == draft


def test_of_equal_matches_the_nearest_counts_and_of_all_the_longest():
    assert draft_text(b"x=1;y=2;z=3;", b"x=1;y?=", limit=1) == b"2"
    assert draft_text(b"x=1;y=2;z=3;", b"x=1;y?z=", limit=1) == b"3"


def test_far_away_only_a_match_of_four_tokens_counts():
    predicted = b"abcdef" + b"." * 100 + b"stuvwxyz"
    assert draft_text(predicted, b"ab!stu") == b""
    assert draft_text(predicted, b"ab!stuv") == b"wxy"


def test_an_output_as_predicted_is_drafted_whole():
    text = [*range(200)]
    steps = replay(drafter_of(text), request_of(), text)
    assert [step.num_accepted for step in steps] == [15] * 12 + [7]


def test_every_replaced_token_costs_one_step_and_one_token():
    predicted = [*range(200)]
    written = [token if token % 50 != 30 else 255 for token in predicted]
    steps = replay(drafter_of(predicted), request_of(), written)
    assert sum(not step.token_ids for step in steps) == 4
    assert len(steps) <= 13 + 2 * 4


def test_what_is_drafted_already_counts_as_written_and_is_forgotten():
    drafter, request = drafter_of(b"abcdefgh"), request_of(b"ab")
    assert bytes(drafter.continue_from(request, b"X", 9)) == b""
    assert bytes(drafter.continue_from(request, b"Xd", 9)) == b"efgh"
    assert bytes(drafter.continue_from(request, b"", 9)) == b"cdefgh"


def test_requests_without_a_prediction_and_those_that_want_no_drafts_get_none():
    asked = []
    drafter = PredictionDrafter(asked.append)
    assert drafter.propose(batch_of(request_of())).token_ids == [[]]
    drafter.propose(batch_of(request_of()))
    assert len(asked) == 1
    request = request_of(speculative=False)
    assert drafter_of(b"abc").propose(batch_of(request)).token_ids == [[]]


def test_a_finished_request_is_forgotten():
    drafter, request = drafter_of(b"abc"), request_of()
    drafter.propose(batch_of(request))
    request.status = RequestStatus.FINISHED
    drafter.propose(batch_of(request_of(request_id=1)))
    assert list(drafter._known) == [1]


def common_suffix(left, right, most):
    length = 0
    while length < min(most, len(left), len(right)) and left[-1 - length] == right[-1 - length]:
        length += 1
    return length


def slow_place(predicted, written):
    """Where the prediction goes on; None where it does not: the definition, token by token."""
    cursor, center = 0, 0
    for end in range(1, len(written) + 1):
        last = written[:end]
        if cursor is not None and predicted[cursor : cursor + 1] == last[-1:]:
            cursor = center = cursor + 1
            continue
        matches = {
            place: common_suffix(predicted[:place], last, module._MAX_MATCH)
            for place in range(1, len(predicted) + 1)
        }
        near = [place for place in matches if abs(place - center) <= module._MAX_NEAR]
        best = max(near, key=lambda place: (matches[place], -abs(place - center), place))
        far = [place for place in matches if place < len(predicted)]
        farthest = max(far, key=lambda place: (matches[place], place), default=best)
        if matches[farthest] > max(matches[best], module._MIN_FAR_MATCH - 1):
            best = farthest
        cursor = best if matches[best] else None
        center = best if matches[best] > 1 else center
    return cursor


KINDS = st.integers(1, 5)


@settings(deadline=None)
@given(
    KINDS.flatmap(lambda most: st.lists(st.integers(0, most), min_size=1, max_size=30)),
    KINDS.flatmap(lambda most: st.lists(st.integers(0, most), max_size=40)),
    st.integers(0, 40),
)
def test_it_follows_its_definition_in_whatever_pieces(predicted, written, cut):
    drafter, request = drafter_of(predicted), request_of(written[:cut])
    drafter.continue_from(request, (), 99)
    request.token_ids += written[cut:]
    place = slow_place(predicted, written)
    expected = [] if place is None else predicted[place:]
    assert drafter.continue_from(request, (), 99) == expected


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1), st.sampled_from([3, 20, 1000]))
def test_junk_far_longer_than_the_prediction_follows_the_definition_too(seed, num_kinds):
    random = np.random.default_rng(seed)
    predicted = random.integers(0, num_kinds, 300).tolist()
    written = random.integers(0, num_kinds, 60).tolist()
    for _ in range(4):
        start_of_piece = int(random.integers(0, 290))
        written += predicted[start_of_piece : start_of_piece + 9]
    place = slow_place(predicted, written)
    drafted = drafter_of(predicted).continue_from(request_of(written), (), 99)
    assert drafted == ([] if place is None else predicted[place : place + 99])
