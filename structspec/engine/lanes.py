"""The two streams of a step: one computes, the other copies what the host decides beside it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch


class Lanes:
    """Streams of a GPU, used by one thread; on a CPU everything happens at once."""

    def __init__(self, device: torch.device) -> None:
        self._is_cuda = device.type == "cuda"
        if self._is_cuda:
            self._compute = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self._copy = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            # streams wait for nothing by themselves, not even for weights on their way
            self._compute.wait_stream(torch.cuda.current_stream(device))
            torch.cuda.set_stream(self._compute)

    def copying(self) -> AbstractContextManager[object]:
        """Within it, work goes to the copying stream."""
        return torch.cuda.stream(self._copy) if self._is_cuda else nullcontext()

    def compute_waits(self) -> None:
        """What is computed from here on sees what was copied so far."""
        if self._is_cuda:
            self._compute.wait_stream(self._copy)

    def copies_wait(self) -> None:
        """What is copied from here on comes behind what was computed so far."""
        if self._is_cuda:
            self._copy.wait_stream(self._compute)

    def mark(self) -> Callable[[], None]:
        """A function that waits until what was launched so far has happened."""
        if not self._is_cuda:
            return lambda: None
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(self._compute)
        return event.synchronize
