"""The process's heap, which a server uses for weeks and from many threads."""

from __future__ import annotations

import ctypes
import os

_M_ARENA_MAX = -8  # glibc's number for it
_NUM_ARENAS = 2


def bound_heap() -> None:
    """Have threads share two of glibc's arenas; to be called before they are started.

    Each of up to eight per core keeps what was freed in it for its own threads: what one thread
    makes and another drops piles up in all of them. Nothing happens under another C library, or
    where MALLOC_ARENA_MAX says how many.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and "MALLOC_ARENA_MAX" not in os.environ:
        mallopt(_M_ARENA_MAX, _NUM_ARENAS)
