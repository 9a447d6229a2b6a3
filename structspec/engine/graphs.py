"""CUDA graphs of one function at several sizes, or the function itself where there are none."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import torch


def bucket_sizes(largest: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, 16, 24 … up to `largest`: padding costs at most a half."""
    sizes = {1, largest}
    power = 2
    while power <= largest:
        sizes |= {power, *([power * 3 // 2] if power * 3 // 2 <= largest else [])}
        power *= 2
    return sorted(sizes)


_Size = TypeVar("_Size", bound=Any)  # whatever can be ordered


class Graphs(Generic[_Size]):
    """A function of a size, captured for some sizes; its inputs and outputs stay where they are.

    Calling it at a size runs the next larger captured one. `function(size)` must do its work on the
    current stream with memory that stays, and may return tensors: those of a captured size are the
    same at every call.
    """

    def __init__(self, function: Callable[[_Size], Any], sizes: Sequence[_Size]) -> None:
        self._function = function
        self.sizes = sorted(sizes)
        self._captured: dict[_Size, tuple[torch.cuda.CUDAGraph, Any]] = {}

    @property
    def is_captured(self) -> bool:
        """Whether there are graphs."""
        return bool(self._captured)

    def fit(self, size: _Size) -> _Size:
        """The size that a call with `size` computes: the next larger bucket, or itself beyond."""
        index = bisect.bisect_left(self.sizes, size)
        return self.sizes[index] if index < len(self.sizes) else size

    def capture(self, pool: Any) -> None:
        """Record all sizes, the largest first, since those behind it fit into its memory."""
        for size in reversed(self.sizes):
            self._function(size)  # compiles what is still to be compiled
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                output = self._function(size)
            self._captured[size] = (graph, output)

    def output(self, size: _Size) -> Any:
        """What a captured size returns, without running it."""
        return self._captured[size][1]

    def __call__(self, size: _Size) -> Any:
        """Run at a size that `fit` gave."""
        if size not in self._captured:
            return self._function(size)
        graph, output = self._captured[size]
        graph.replay()
        return output
