"""Steps that run out of memory: smaller ones follow, and only what does not fit alone is lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from structspec.engine.memory_pressure import MemoryPressure


def test_a_step_that_runs_out_halves_those_after_it() -> None:
    pressure = MemoryPressure(100)
    assert not pressure.ran_out(num_requests=8)
    assert pressure.num_tokens == 50
    assert not pressure.ran_out(num_requests=8)
    assert pressure.num_tokens == 25


def test_a_request_is_given_up_when_it_runs_out_alone_a_second_time_in_a_row() -> None:
    pressure = MemoryPressure(100)
    assert [pressure.ran_out(n) for n in (8, 1, 1)] == [False, False, True]
    assert [pressure.ran_out(n) for n in (1, 8, 1)] == [False, False, False]


def test_a_step_that_goes_well_between_two_failures_saves_a_request() -> None:
    pressure = MemoryPressure(100)
    assert not pressure.ran_out(1)
    pressure.went_well()
    assert not pressure.ran_out(1)


def test_a_request_whose_every_step_has_room_but_the_last_is_given_up_in_the_end() -> None:
    pressure = MemoryPressure(4096)
    for num_failures in range(1, 17):
        for _ in range(1000):
            pressure.went_well(has_brought_tokens=False)  # a part of its prompt
        assert pressure.ran_out(1) == (num_failures == 16)
    assert pressure.num_tokens == 1


def test_any_token_between_two_failures_proves_that_something_fits() -> None:
    pressure = MemoryPressure(4096)
    for _ in range(100):
        pressure.went_well()
        assert not pressure.ran_out(1)


def test_the_next_request_has_two_tries_as_well() -> None:
    pressure = MemoryPressure(100)
    assert [pressure.ran_out(1) for _ in range(4)] == [False, True, False, True]


def test_steps_grow_back_when_many_went_well_and_never_beyond_what_is_configured() -> None:
    pressure = MemoryPressure(100)
    for _ in range(3):
        pressure.ran_out(5)
    sizes = []
    for _ in range(1000):
        sizes.append(pressure.num_tokens)
        pressure.went_well()
    assert sorted(set(sizes)) == [12, 24, 48, 96, 100]
    assert sizes == sorted(sizes)
    assert sizes.count(12) > 100  # not at once: the cause may still be there


@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=8),
    capacity=st.integers(0, 80),
    budget=st.integers(1, 80),
)
def test_every_request_ends_and_is_lost_only_where_half_its_step_was_too_much(
    lengths, capacity, budget
):
    """Requests of some tokens are computed oldest first, and a step holds `capacity` tokens."""
    pressure = MemoryPressure(budget)
    left = dict(enumerate(lengths))
    lost = []
    for _ in range(1000):
        step: dict[int, int] = {}
        for request, num_missing in left.items():
            num_tokens = min(num_missing, pressure.num_tokens - sum(step.values()))
            if num_tokens > 0:
                step[request] = num_tokens
        if not step:
            break
        if sum(step.values()) <= capacity:
            pressure.went_well()
            left = {r: n - step.get(r, 0) for r, n in left.items() if n > step.get(r, 0)}
            continue
        last_budget = pressure.num_tokens
        if pressure.ran_out(len(step)):
            (request,) = step
            lost.append((request, step[request]))
            del left[request]
        else:  # preempted: computed from its beginning again
            left |= {request: lengths[request] for request in step}
        assert pressure.num_tokens == max(1, last_budget // 2)
    assert not left
    assert all(num_tokens > capacity for _, num_tokens in lost)
    if capacity >= budget:
        assert not lost
