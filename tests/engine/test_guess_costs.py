"""What guesses cost is learnt, and a bad moment forgotten."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structspec.engine.batch import Drafting
from structspec.engine.guess_costs import GuessCosts, _Line
from tests.engine.guessing_steps import Costs, Steps, text_with_repeats

USUAL = Costs(0.5, 0.8, 0.9)
SLOW = {
    "guesses": Costs(0.5, 0.8, 500.0),
    "steps launched late": Costs(0.5, 500.0, 0.9),
    "the machine": Costs(500.0, 500.0, 500.0),
}


def count_steps_to_recover(steps: Steps, best: float) -> int:
    """Until it is nearly as fast as it was."""
    for num_steps in range(0, 20_000, 200):
        num_tokens, start = steps.num_tokens, steps.now
        for _ in range(200):
            steps.step(None)
        if (steps.num_tokens - num_tokens) / (steps.now - start) > 0.85 * best:
            return num_steps
    return 20_000


@pytest.mark.parametrize("slow", SLOW.values(), ids=SLOW)
@pytest.mark.parametrize("num_requests", [1, 8])
@pytest.mark.parametrize("num_slow", [1, 3])
@pytest.mark.parametrize("when", ["among others", "at first", "before any other"])
def test_after_a_moment_in_which_steps_were_slow_guesses_are_made_again(
    slow: Costs, num_requests: int, num_slow: int, when: str
) -> None:
    """At once where it is known what they take; else, for it may be true, within 7,000 steps."""
    source = random.Random(4)
    texts = [text_with_repeats(source, 0.9) for _ in range(num_requests)]
    best = Steps(texts, USUAL).run(3000 * num_requests)
    steps = Steps(texts, USUAL)
    if when == "among others":
        steps.run(1000 * num_requests)
    num_between = 0 if when == "before any other" else 2
    for _ in range(num_between):
        steps.step(Drafting.NOTHING)
    steps.costs = slow
    for _ in range(num_slow):
        for drafting in (Drafting.GUESSES, *[Drafting.NOTHING] * num_between):
            steps.step(drafting)
    steps.costs = USUAL
    assert count_steps_to_recover(steps, best) <= (400 if when == "among others" else 7000)


@given(
    st.lists(st.tuples(st.integers(0, 300), st.floats(1e-9, 1e6)), min_size=1, max_size=60),
    st.integers(0, 300),
)
def test_no_step_is_thought_to_take_less_than_nothing(
    steps: list[tuple[int, float]], gain: int
) -> None:
    line = _Line()
    for gained, seconds in steps:
        line.note(gained, seconds, math.inf)
        assert line.seconds > 0
        assert 0 <= line.at(gain) < math.inf


@pytest.mark.parametrize("num_requests", [1, 16])
def test_what_guesses_cost_is_not_forgotten_so_far_that_it_has_to_be_learnt_anew(
    num_requests: int,
) -> None:
    """However long nobody has guessed: some steps tell that these are dear."""
    costs = GuessCosts(num_requests)
    for num_others in (10, 100_000):
        for _ in range(num_others):
            costs.note(1.0, num_requests, num_requests, guesses=False, was_ahead=True)
        for _ in range(12):
            costs.note(4.0, 2 * num_requests, num_requests, guesses=True, was_ahead=False)
        assert costs._guessing.at(num_requests) > 2.5


def test_a_step_that_took_long_is_not_all_lost_by_guesses() -> None:
    costs = GuessCosts(16)
    for _ in range(100):
        costs.note(1.0, 16, 16, guesses=False, was_ahead=True)
        costs.note(1.5, 32, 16, guesses=True, was_ahead=False)
    costs.note(1e6, 32, 16, guesses=True, was_ahead=False)
    assert costs.pays(32, 16, is_ahead=True)
