"""Whether there is time to walk all requests of a step: what that takes, and what the model takes.

n      requests;  w  seconds of a walk;  S  of the model's own step with n rows
walk   if n * w <= S / 2

A walk finds nearly half as much again as what is drafted for all requests at once, and delays them
all. So it pays while all walks together take less than about half of a step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

_SHARE = 0.5  # of the model's own step
_WEIGHT = 0.1  # of a walk against those before it
_SURPRISE = 3.0  # times what one takes: more is the machine's
_FADING = 0.999  # of what a walk took, with each step without one: a bad moment is forgotten


class Haste:
    """Times walks, and says whether there is time for them."""

    def __init__(
        self,
        step_seconds: Callable[[int], float] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`step_seconds`: of the model's own step with so many rows; without it there is time."""
        self._step_seconds = step_seconds
        self._clock = clock
        self._walk_seconds = 0.0

    def has_time_for(self, num_walks: int) -> bool:
        """Whether a step may walk so many requests; to be asked once for each step."""
        if self._step_seconds is None:
            return True
        if num_walks * self._walk_seconds <= _SHARE * self._step_seconds(num_walks):
            return True
        self._walk_seconds *= _FADING
        return False

    def timed(self, indices: Iterable[int]) -> Iterator[int]:
        """The indices, one after the other, while what is done with each is timed."""
        now = self._clock()
        for index in indices:
            yield index
            before, now = now, self._clock()
            self._note(now - before)

    def _note(self, seconds: float) -> None:
        if self._walk_seconds == 0:
            self._walk_seconds = seconds
        seconds = min(seconds, _SURPRISE * self._walk_seconds)
        self._walk_seconds += _WEIGHT * (seconds - self._walk_seconds)
