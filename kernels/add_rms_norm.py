"""Add to the residual stream and normalise it.

residual[i] += x[i];  out[i] = residual[i] / sqrt(mean(residual[i]^2) + eps) * weight
x, residual, out: [num_rows, hidden_size]. A row's result depends on that row alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from structspec.kernels.compiled import compiled, runs_compiled


def add_rms_norm_reference(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The formula in plain torch, in float32; changes `residual` in place."""
    residual += x
    wide = residual.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


@compiled
def _add_rms_norm_kernel(x: Any, residual: Any, weight: Any, eps: Any, out: Any) -> None:
    num_rows, size = x.shape
    for row in range(num_rows):
        squares = np.float32(0.0)
        for i in range(size):
            value = residual[row, i] + x[row, i]
            residual[row, i] = value
            squares += value * value
        scale = np.float32(1.0) / np.sqrt(squares / np.float32(size) + eps)
        for i in range(size):
            out[row, i] = residual[row, i] * scale * weight[i]


def add_rms_norm(
    x: Tensor,  # [num_rows, hidden_size]
    residual: Tensor,  # [num_rows, hidden_size], changed in place
    weight: Tensor,  # [hidden_size]
    eps: float,
) -> Tensor:
    """The normalised sum; compiled for float32 on the CPU."""
    if not runs_compiled(x):
        return add_rms_norm_reference(x, residual, weight, eps)
    out = torch.empty_like(x)
    _add_rms_norm_kernel(x.numpy(), residual.numpy(), weight.numpy(), np.float32(eps), out.numpy())
    return out
