"""Spread a compiled loop over the very threads that torch's matrix products run on.

Threads of a pool spin for a while when their work is done. A second pool beside torch's, such as
the one behind `numba.prange`, would spin against the first one's work: on two cores that others use
too, a decode step with two pools took 264 ms, with one 79 ms. So this calls the OpenMP runtime that
torch has loaded. Where there is none, the loop runs on the calling thread.

An entry is compiled code that is called once on each thread with a table of addresses:

    entry(table):    thread t of n does tasks t, t + n, t + 2n, ...
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import llvmlite.binding  # type: ignore[import-untyped]
import numba
import torch
from torch import Tensor

THREAD_NUM, NUM_THREADS, PARALLEL = "omp_get_thread_num", "omp_get_num_threads", "GOMP_parallel"

# To be called inside entries only.
thread_num = numba.types.ExternalFunction(THREAD_NUM, numba.types.intc())
num_threads = numba.types.ExternalFunction(NUM_THREADS, numba.types.intc())

_TABLE = numba.types.CPointer(numba.types.voidptr)


@functools.cache
def _openmp() -> Any:
    """The runtime torch has loaded, its functions known to the compiler; None without one."""
    runtime = ctypes.CDLL(None)
    if not all(hasattr(runtime, name) for name in (THREAD_NUM, NUM_THREADS, PARALLEL)):
        return None
    for name in (THREAD_NUM, NUM_THREADS):
        address = ctypes.cast(getattr(runtime, name), ctypes.c_void_p).value
        llvmlite.binding.add_symbol(name, address)
    parallel = runtime.GOMP_parallel
    parallel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    parallel.restype = None
    return parallel


def can_spread() -> bool:
    """Whether entries can run at all, and more than one thread is to be had."""
    return torch.get_num_threads() > 1 and _openmp() is not None


def compile_entry(function: Callable[[Any], None]) -> int:
    """The address of an entry's machine code; slow, once per process."""
    try:
        entry = numba.cfunc(numba.types.void(_TABLE), cache=True)(function)
    except RuntimeError:  # no folder to keep it in
        entry = numba.cfunc(numba.types.void(_TABLE))(function)
    _keep_alive.append(entry)
    return int(entry.address)


_keep_alive: list[Any] = []  # machine code goes with its object


def spread(entry: int, *tensors: Tensor) -> None:
    """Run an entry on all of torch's threads; its table holds the addresses of `tensors`."""
    table = (ctypes.c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))
    _openmp()(entry, table, torch.get_num_threads(), 0)
