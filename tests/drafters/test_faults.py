"""A drafter that fails costs drafts, and is left alone for a while where it goes on failing."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structspec.drafters.faults import FaultTolerantDrafter
from structspec.engine.batch import Batch, Draft, guessed
from tests.drafters.toy import batch_of, start
from tests.engine.toy import VOCABULARY


class Failing:
    """Fails when it is asked for these times, the first being 0."""

    def __init__(self, times: Iterable[int], error: BaseException) -> None:
        self._times = times
        self._error = error
        self.num_asked = 0

    def propose(self, batch: Batch) -> Draft:
        self.num_asked += 1
        if self.num_asked - 1 in self._times:
            raise self._error
        return guessed([[1] for _ in batch.requests])


def a_batch(num_draft_slots: int = 4) -> Batch:
    return batch_of(start(VOCABULARY), start(VOCABULARY), num_draft_slots=num_draft_slots)


@given(times=st.sets(st.integers(0, 20), max_size=7))
def test_a_step_whose_drafter_fails_has_no_drafts_and_all_others_have(times: set[int]) -> None:
    faults: list[None] = []
    drafter = FaultTolerantDrafter(Failing(times, KeyError("x")), lambda: faults.append(None))
    batch = a_batch()
    for step in range(25):
        draft = drafter.propose(batch)
        assert [*map(list, draft.token_ids)] == [[] if step in times else [1]] * 2
    assert len(faults) == len(times)


def test_one_that_fails_on_and_on_is_asked_again_after_ever_longer_rests(
    caplog: pytest.LogCaptureFixture,
) -> None:
    inner = Failing(range(10), ValueError("why"))
    drafter, batch = FaultTolerantDrafter(inner), a_batch()
    asked = []
    for step in range(9000):
        before = inner.num_asked
        draft = drafter.propose(batch)
        if inner.num_asked > before:
            asked.append(step)
            has_drafts = any(draft.token_ids)
            assert has_drafts == (inner.num_asked > 10)
    rests = [b - a - 1 for a, b in zip(asked, asked[1:], strict=False)]
    assert rests[:10] == [0] * 7 + [1024, 2048, 4096] and not any(rests[10:])
    # the first fault with its traceback, and the rests
    assert [bool(record.exc_info) for record in caplog.records] == [True, False, False, False]
    assert all("'why'" in record.getMessage() for record in caplog.records[1:])


class Partly:
    """Fails for some requests and drafts for others."""

    def __init__(self, token_ids: list[list[int]], num_faults: int) -> None:
        faults = [KeyError(index) for index in range(num_faults)]
        self._draft = replace(guessed(token_ids), faults=faults)
        self.num_asked = 0

    def propose(self, batch: Batch) -> Draft:
        self.num_asked += 1
        return self._draft


def test_a_fault_for_one_request_leaves_the_others_their_drafts() -> None:
    faults: list[None] = []
    inner = Partly([[1], []], 1)
    drafter = FaultTolerantDrafter(inner, lambda: faults.append(None))
    for _ in range(20):
        assert drafter.propose(a_batch()).token_ids == [[1], []]
    assert inner.num_asked == len(faults) == 20


def test_many_faults_in_one_step_are_one_step(caplog: pytest.LogCaptureFixture) -> None:
    faults: list[None] = []
    inner = Partly([[], []], 10)
    drafter = FaultTolerantDrafter(inner, lambda: faults.append(None))
    for _ in range(20):
        drafter.propose(a_batch())
    assert (inner.num_asked, len(faults)) == (8, 80)
    assert len(caplog.records) == 2


def test_one_that_is_well_again_is_forgiven() -> None:
    inner = Failing([step for step in range(40) if step % 8 != 7], ValueError("why"))
    drafter, batch = FaultTolerantDrafter(inner), a_batch()
    for _ in range(40):
        drafter.propose(batch)
    assert inner.num_asked == 40


def test_a_step_without_room_for_drafts_says_nothing_of_a_drafter() -> None:
    inner = Failing(range(0, 99, 2), ValueError("why"))
    drafter = FaultTolerantDrafter(inner)
    for step in range(40):
        drafter.propose(a_batch(0 if step % 2 else 4))
    assert inner.num_asked == 15  # eight of them failed


def test_a_step_that_lost_its_drafts_is_waited_for_like_one_with_guesses() -> None:
    draft = FaultTolerantDrafter(Failing([0], ValueError("why"))).propose(a_batch())
    assert draft.num_hopeful == 2


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit()])
def test_what_ends_a_program_passes(error: BaseException) -> None:
    with pytest.raises(type(error)):
        FaultTolerantDrafter(Failing([0], error)).propose(a_batch())


def test_the_log_says_it_once_and_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    drafter = FaultTolerantDrafter(Failing(range(5), RuntimeError("no such table")))
    with caplog.at_level(logging.WARNING, logger="structspec"):
        for _ in range(5):
            drafter.propose(a_batch())
    (record,) = caplog.records
    assert "Mend the class" in record.getMessage() and "no such table" in caplog.text
