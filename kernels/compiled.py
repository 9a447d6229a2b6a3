"""Compile a Python loop to machine code for the CPU: numba, with the settings all kernels share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import torch

# Sums may be reordered into vector lanes and multiply-adds fused: the order is then fixed by the
# compiled loop, so equal rows still give equal bits. Nothing may assume finite numbers.
_FASTMATH = {"reassoc", "contract", "nsz"}
_Function = Callable[..., Any]


def compiled(function: _Function) -> _Function:
    """The function as machine code without the GIL; kept on disk where that is possible."""
    return _njit(function, parallel=False)


def compiled_parallel(function: _Function) -> _Function:
    """Like `compiled`, with `numba.prange` loops spread over threads."""
    return _njit(function, parallel=True)


def runs_compiled(tensor: torch.Tensor) -> bool:
    """Whether the compiled kernels take this tensor: float32 in main memory."""
    return tensor.device.type == "cpu" and tensor.dtype == torch.float32


def _njit(function: _Function, *, parallel: bool) -> _Function:
    options = {"parallel": parallel, "nogil": True, "fastmath": _FASTMATH, "error_model": "numpy"}
    try:
        fast: _Function = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # neither the package nor the user's cache folder can be written
        fast = numba.njit(**options)(function)
    return fast
