"""Add to the residual stream and normalise it.

residual[i] += x[i];  out[i] = residual[i] / sqrt(mean(residual[i]^2) + eps) * weight
x, residual, out: [num_rows, hidden_size]. A row's result depends on that row alone. Sums are
float32; the residual and the normalised row are rounded to their own type, as transformers does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
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


@triton.jit  # type: ignore[untyped-decorator]
def _add_rms_norm_triton_kernel(
    x_ptr: tl.tensor,
    residual_ptr: tl.tensor,
    weight_ptr: tl.tensor,
    out_ptr: tl.tensor,
    size: tl.tensor,
    eps: tl.tensor,
    BLOCK_SIZE: tl.constexpr,
) -> None:
    start = tl.program_id(0).to(tl.int64) * size
    i = tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + start + i, mask=i < size, other=0.0)
    residual = tl.load(residual_ptr + start + i, mask=i < size, other=0.0)
    residual = (residual.to(tl.float32) + x.to(tl.float32)).to(residual_ptr.dtype.element_ty)
    tl.store(residual_ptr + start + i, residual, mask=i < size)
    wide = residual.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(wide * wide, 0) / size + eps)
    weight = tl.load(weight_ptr + i, mask=i < size, other=0.0)
    out = (wide * scale).to(out_ptr.dtype.element_ty) * weight
    tl.store(out_ptr + start + i, out, mask=i < size)


def add_rms_norm_triton(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The kernel, one program per row; on a CPU it needs Triton's interpreter."""
    num_rows, size = x.shape
    out = torch.empty_like(x)
    if num_rows > 0:
        block_size = triton.next_power_of_2(size)
        _add_rms_norm_triton_kernel[(num_rows,)](
            x,
            residual,
            weight,
            out,
            size,
            eps,
            BLOCK_SIZE=block_size,
            num_warps=min(16, max(4, block_size // 512)),
        )
    return out


def add_rms_norm(
    x: Tensor,  # [num_rows, hidden_size]
    residual: Tensor,  # [num_rows, hidden_size], changed in place
    weight: Tensor,  # [hidden_size]
    eps: float,
) -> Tensor:
    """The normalised sum; compiled for float32 on the CPU."""
    assert x.is_contiguous() and residual.is_contiguous()
    if x.is_cuda:
        return add_rms_norm_triton(x, residual, weight, eps)
    if not runs_compiled(x):
        return add_rms_norm_reference(x, residual, weight, eps)
    out = torch.empty_like(x)
    _add_rms_norm_kernel(x.numpy(), residual.numpy(), weight.numpy(), np.float32(eps), out.numpy())
    return out
