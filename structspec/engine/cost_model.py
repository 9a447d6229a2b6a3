"""What a step of so many rows costs: measured when an engine is made ready, before any request."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

_NUM_REPEATS = 3  # the fastest counts; one before them warms up


class CostModel:
    """Seconds of one step by its rows; between two sizes and beyond them on a straight line.

    Where a step is padded to the next size it costs what that does. More rows never cost less:
    where they did, the measurement was disturbed.
    """

    def __init__(self, seconds: Mapping[int, float], *, is_padded: bool = False) -> None:
        """`seconds` by the number of rows, of at least one size."""
        self._rows = np.array(sorted(seconds), np.float64)
        self._seconds = np.maximum.accumulate([seconds[int(rows)] for rows in self._rows])
        self._is_padded = is_padded
        self._of_steps: dict[int, float] = {}

    def seconds(self, rows: NDArray[np.float64] | float) -> NDArray[np.float64]:
        """Of steps with so many rows, each."""
        rows = np.asarray(rows, np.float64)
        places = np.searchsorted(self._rows, rows)
        if self._is_padded:
            within = self._seconds[np.minimum(places, len(self._rows) - 1)]
        else:
            within = np.interp(rows, self._rows, self._seconds)
        beyond = np.maximum(rows - self._rows[-1], 0) * self._slope_beyond
        return np.asarray(within + beyond)

    def of_step(self, num_rows: int) -> float:
        """Seconds of one step with so many rows; remembered, for every step asks."""
        known = self._of_steps.get(num_rows)
        if known is None:
            known = self._of_steps[num_rows] = float(self.seconds(num_rows))
        return known

    @property
    def _slope_beyond(self) -> float:
        """Seconds a row behind the largest size: as between the largest and half of it."""
        rows, seconds = self._rows, self._seconds
        half = int(np.searchsorted(rows, rows[-1] / 2))
        if half == len(rows) - 1:
            half -= 1
        if half < 0:
            return 0.0
        return float((seconds[-1] - seconds[half]) / (rows[-1] - rows[half]))


def measure_steps(
    run: Callable[[int], None],
    sizes: Sequence[int],
    clock: Callable[[], float] = time.perf_counter,
) -> dict[int, float]:
    """The seconds of a step of each size; `run` computes one and waits for it."""
    measured = {}
    for size in sizes:
        run(size)
        seconds = []
        for _ in range(_NUM_REPEATS):
            start = clock()
            run(size)
            seconds.append(clock() - start)
        measured[size] = min(seconds)
    return measured
