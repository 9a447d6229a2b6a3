"""Compile a Python loop to machine code for the CPU: numba, with the settings all kernels share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import torch

# Multiply-adds may be fused, and sums reordered into vector lanes: the order is then fixed by the
# compiled loop, so equal rows still give equal bits. Nothing may assume finite numbers.
_IN_ORDER = frozenset({"contract"})
_REORDERED = frozenset({"contract", "reassoc", "nsz"})
_Function = Callable[..., Any]


def compiled(function: _Function) -> _Function:
    """The function as machine code that runs without the GIL; kept on disk where possible."""
    return _njit(function, _REORDERED)


def compiled_in_order(function: _Function) -> _Function:
    """Like `compiled`, for formulas whose accuracy hangs on the order they are written in."""
    return _njit(function, _IN_ORDER)


def runs_compiled(tensor: torch.Tensor) -> bool:
    """Whether the compiled kernels take this tensor: float32 in main memory."""
    return tensor.device.type == "cpu" and tensor.dtype == torch.float32


def _njit(function: _Function, fastmath: frozenset[str]) -> _Function:
    options = {"nogil": True, "error_model": "numpy", "fastmath": set(fastmath)}
    try:
        fast: _Function = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # neither the package nor the user's cache folder can be written
        fast = numba.njit(**options)(function)
    return fast
