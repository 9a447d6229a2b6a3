"""CUDA graphs of one function at several sizes, or the function itself where there are none."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import torch

_MANY_ROWS = 128


def bucket_sizes(largest: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12 … 128, 160, 192, 224, 256 … up to `largest`.

    Padding costs at most a half of few rows, which a GPU computes in the time of one, and a quarter
    of many, which take longer the more there are.
    """
    sizes = {1, largest}
    power = 2
    while power <= largest:
        step = power // 4 if power >= _MANY_ROWS else power // 2
        sizes.update(range(power, min(2 * power, largest + 1), step))
        power *= 2
    return sorted(sizes)


_Size = TypeVar("_Size", bound=Any)  # whatever can be ordered
_capturing = threading.Lock()  # torch can record one graph at a time in a whole process


class Graphs(Generic[_Size]):
    """A function of a size, captured for some sizes; its inputs and outputs stay where they are.

    `function(size)` must do its work on the current stream, with memory that stays.
    """

    def __init__(self, function: Callable[[_Size], None], sizes: Sequence[_Size]) -> None:
        self._function = function
        self._sizes = sorted(sizes)
        self._captured: dict[_Size, torch.cuda.CUDAGraph] = {}

    def capture(self, pool: Any) -> None:
        """Record all sizes, the largest first, since those behind it fit into its memory."""
        for size in reversed(self._sizes):
            self._function(size)  # compiles what is still to be compiled
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            # thread_local: engines on other threads may go on, and allocate and wait meanwhile
            with (
                _capturing,
                torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"),
            ):
                self._function(size)
            self._captured[size] = graph

    def __call__(self, size: _Size) -> None:
        """Replay what was captured at this size, or run the function."""
        graph = self._captured.get(size)
        if graph is None:
            self._function(size)
        else:
            graph.replay()
