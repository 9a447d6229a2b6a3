"""The heap of a process that is there for a model alone: a server's, for weeks and many threads."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
from collections.abc import Iterator

_M_ARENA_MAX = -8  # glibc's number for it
_TUNABLE = "glibc.malloc.arena_max"  # the same among GLIBC_TUNABLES
_NUM_ARENAS = 2


def bound_heap() -> None:
    """Have threads share two of glibc's arenas; to be called before they are started.

    Each of up to eight per core keeps what was freed in it for its own threads: what one thread
    makes and another drops piles up in all of them. Nothing happens under another C library, or
    where the environment says how many.
    """
    if "MALLOC_ARENA_MAX" in os.environ or _TUNABLE in os.environ.get("GLIBC_TUNABLES", ""):
        return
    try:
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    except TypeError:  # under Windows, where no library is without a name
        return
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, _NUM_ARENAS)


@contextlib.contextmanager
def kept_from_collector() -> Iterator[None]:
    """Have Python's garbage collector pass over what there is; to be entered once all is loaded.

    Of libraries and tables there are so many objects that to look through all of them takes 50 ms
    or more, in which every stream stands still. What becomes garbage in a circle meanwhile is freed
    behind it: in a process that does other things too this is its owner's to decide.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
