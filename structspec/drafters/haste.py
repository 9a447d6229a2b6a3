"""How many requests of a step there is time to walk: what that takes, and what the model takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

_SHARE = 0.5  # of the model's own step
_WEIGHT = 0.05  # of a walk against those before it
_SURPRISE = 3.0  # times what one takes: more is the machine's


class Haste:
    """Lets walks be taken while all of a step have taken less than a share of the model's time."""

    def __init__(
        self,
        step_seconds: Callable[[int], float] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`step_seconds`: of a step with so many rows; without it there is always time."""
        self._step_seconds = step_seconds
        self._clock = clock
        self._walk_seconds = 0.0

    def has_time_for(self, num_walks: int) -> bool:
        """Whether so many walks can be expected to end in time."""
        return num_walks * self._walk_seconds <= self._patience(num_walks)

    def timed(self, indices: Iterable[int], num_walks: int | None = None) -> Iterator[int]:
        """The indices, one after the other, while what is done with each is timed.

        With `num_walks`, that of all requests, only as long as there is time.
        """
        patience = float("inf") if num_walks is None else self._patience(num_walks)
        start = now = self._clock()
        for index in indices:
            if now - start > patience:
                return
            yield index
            before, now = now, self._clock()
            self._note(now - before)

    def _patience(self, num_walks: int) -> float:
        if self._step_seconds is None:
            return float("inf")
        return _SHARE * self._step_seconds(num_walks)

    def _note(self, seconds: float) -> None:
        if self._walk_seconds > 0:
            seconds = min(seconds, _SURPRISE * self._walk_seconds)
        self._walk_seconds += (_WEIGHT if self._walk_seconds > 0 else 1) * (
            seconds - self._walk_seconds
        )
