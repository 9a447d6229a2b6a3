"""The gated activation of a llama-family MLP.

out[i] = silu(gate[i]) * up[i],  silu(x) = x / (1 + exp(-x)),  gate_up[i] = [gate[i], up[i]]
gate_up: [num_rows, 2 * size]; out: [num_rows, size]. A row's result depends on that row alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from structspec.kernels.compiled import compiled, runs_compiled
from structspec.kernels.exp import exp

_BLOCK_SIZE = 1024


def silu_mul_reference(gate_up: Tensor) -> Tensor:
    """The formula in plain torch."""
    gate, up = gate_up.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate) * up


@compiled
def _silu_mul_kernel(gate_up: Any, out: Any) -> None:
    num_rows, size = out.shape
    for row in range(num_rows):
        for i in range(size):
            gate = gate_up[row, i]
            out[row, i] = gate / (np.float32(1.0) + exp(-gate)) * gate_up[row, size + i]


@triton.jit  # type: ignore[untyped-decorator]
def _silu_mul_triton_kernel(
    gate_up_ptr: tl.tensor, out_ptr: tl.tensor, size: tl.tensor, BLOCK_SIZE: tl.constexpr
) -> None:
    row = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    gate = tl.load(gate_up_ptr + row * 2 * size + i, mask=i < size, other=0.0).to(tl.float32)
    up = tl.load(gate_up_ptr + (row * 2 + 1) * size + i, mask=i < size, other=0.0)
    activated = (gate / (1.0 + tl.exp(-gate))).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + row * size + i, activated * up, mask=i < size)


def silu_mul_triton(gate_up: Tensor) -> Tensor:
    """The kernel, one program per part of a row; on a CPU it needs Triton's interpreter."""
    num_rows, size = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty(num_rows, size, dtype=gate_up.dtype, device=gate_up.device)
    if num_rows > 0:
        grid = (num_rows, triton.cdiv(size, _BLOCK_SIZE))
        _silu_mul_triton_kernel[grid](gate_up, out, size, BLOCK_SIZE=_BLOCK_SIZE)
    return out


def silu_mul(gate_up: Tensor) -> Tensor:  # [num_rows, 2 * size] -> [num_rows, size]
    """silu(gate) * up; compiled for float32 on the CPU."""
    assert gate_up.is_contiguous()
    if gate_up.is_cuda:
        return silu_mul_triton(gate_up)
    if not runs_compiled(gate_up):
        return silu_mul_reference(gate_up)
    out = torch.empty(gate_up.shape[0], gate_up.shape[1] // 2)
    _silu_mul_kernel(gate_up.numpy(), out.numpy())
    return out
