"""Text is told in rounds once many requests are written: nothing late at its ends, nothing lost."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structspec.engine.news_rounds import NewsRounds
from structspec.reasoning_boundary import REASONING, Boundary, State
from structspec.reasoning_progress import ReasoningProgress
from structspec.request import Request, RequestStatus, SamplingParams
from structspec.vocabulary import Vocabulary

BOUNDARY = Boundary(Vocabulary.bytes(), "<think>", "</think>")


class Clock:
    now = 1.0

    def __call__(self) -> float:
        return self.now


def requests(count: int) -> list[Request]:
    """With text to be told."""
    found = [Request(number, [0], SamplingParams(), 100) for number in range(count)]
    for request in found:
        request.text.append(b"x")
    return found


def tell(told: Sequence[Request]) -> Sequence[Request]:
    """Hand out their text, as an engine's loop does."""
    for request in told:
        request.text.take()
    return told


def test_few_requests_are_told_of_every_step_however_fast_steps_are():
    clock, news = Clock(), requests(4)
    rounds = NewsRounds(10, clock)
    for _ in range(5):
        assert tell(rounds.take(news)) == news
        clock.now += 1e-6


def test_many_requests_wait_until_their_pieces_are_paid_for():
    clock, news = Clock(), requests(10)
    rounds = NewsRounds(100, clock)  # ten pieces take a tenth of a second
    assert tell(rounds.take(news)) == news
    clock.now += 0.09
    assert rounds.take(news) == []
    clock.now += 0.02
    assert rounds.take(news) == news


def test_a_first_text_and_an_end_are_told_at_once():
    clock, news = Clock(), requests(10)
    rounds = NewsRounds(100, clock)
    tell(rounds.take(news))
    (late,) = requests(1)
    assert tell(rounds.take([*news, late])) == [late]
    news[3].status = RequestStatus.FINISHED
    assert rounds.take([*news, late]) == [news[3]]
    clock.now += 1
    assert rounds.take([late]) == [*news[:3], *news[4:], late]


@pytest.mark.parametrize("is_reasoning", [False, True])
def test_a_first_text_is_told_at_once_though_steps_before_it_had_none(is_reasoning: bool):
    """Of a long prompt, while a grammar is waited for, of half a character or a marker."""
    news = requests(10)
    late = Request(10, [0], SamplingParams(), 100)
    late.reasoning = ReasoningProgress(BOUNDARY, State(REASONING, 0)) if is_reasoning else None
    rounds = NewsRounds(100, Clock())
    assert tell(rounds.take([*news, late])) == [*news, late]
    assert tell(rounds.take([*news, late])) == [late]
    text = late.text if late.reasoning is None else late.reasoning.text
    text.append(b"x")
    assert rounds.take([*news, late]) == [late]
    assert text.take() == "x"
    assert rounds.take([*news, late]) == []


def test_without_a_limit_every_step_is_told():
    news = requests(100)
    rounds = NewsRounds(0, Clock())
    assert all(tell(rounds.take(news)) == news for _ in range(3))


def test_before_the_engine_rests_all_that_waited_is_told():
    news = requests(10)
    rounds = NewsRounds(100, Clock())
    tell(rounds.take(news))
    assert rounds.take(news[:5]) == []
    assert rounds.take([], is_last=True) == news[:5]


@given(
    st.lists(
        st.tuples(st.floats(0, 0.2), st.sets(st.integers(0, 19)), st.sets(st.integers(0, 19))),
        max_size=30,
    )
)
def test_nothing_waits_for_ever_and_pieces_keep_to_the_limit(
    steps: list[tuple[float, set[int], set[int]]],
):
    clock, everybody = Clock(), requests(20)
    rounds = NewsRounds(100, clock)
    untold: set[Request] = set()
    seen: set[Request] = set()
    num_pieces = 0  # of rounds
    for seconds, written, ended in steps:
        clock.now += seconds
        news = [everybody[n] for n in sorted(written) if not everybody[n].is_finished]
        for request in news:
            if request.request_id in ended:
                request.status = RequestStatus.FINISHED
        untold.update(news)
        is_many = len(untold) > 4
        told = tell(rounds.take(news))
        assert untold.issuperset(told)
        assert all(one in told for one in news if one.is_finished or one not in seen)
        if is_many and not all(one.is_finished or one not in seen for one in told):
            num_pieces += len(told)
        seen.update(told)
        untold.difference_update(told)
    # a round of n pieces is followed by n / 100 seconds without another
    assert num_pieces <= 100 * (clock.now - 1) + 20
    assert set(rounds.take([], is_last=True)) == untold
