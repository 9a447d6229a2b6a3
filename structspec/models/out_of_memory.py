"""Where the device's memory runs out before serving starts: a typed error that says what to do."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TypeVar

import torch

from structspec.errors import OutOfMemory

T = TypeVar("T")


def is_out_of_memory(error: Exception) -> bool:
    """Whether the device's memory did not suffice, be it torch, the driver or cuBLAS that says so.

    Either of these leaves the device in working order.
    """
    if isinstance(error, torch.OutOfMemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and ("out of memory" in text or "alloc_failed" in text)


def within_memory(work: Callable[[], T], doing: str, advice: str) -> T:
    """What `work` returns; raises OutOfMemory where the device's memory does not suffice for it.

    Nothing that `work` had allocated is kept alive by the error: there is room to try again.
    """
    try:
        return work()
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        # Such as: Tried to allocate 2.00 GiB. GPU 0 has a total capacity of … of which … is free.
        numbers, _, _ = str(error).partition(" Of the allocated memory")
    # Raised out here: as the context of this error, the other one would keep its frames.
    raise OutOfMemory(f"the device's memory ran out while {doing} ({numbers}): {advice}")


def release_memory() -> None:
    """Give a GPU's memory that nothing uses any more back to the driver; elsewhere does nothing."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        gc.collect()  # engines and graphs are in circles
        torch.cuda.empty_cache()
