"""The gated activation of a llama-family MLP.

out[i] = silu(gate[i]) * up[i],  silu(x) = x / (1 + exp(-x)),  gate_up[i] = [gate[i], up[i]]
gate_up: [num_rows, 2 * size]; out: [num_rows, size]. A row's result depends on that row alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from structspec.kernels.compiled import compiled, runs_compiled
from structspec.kernels.exp import exp


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


def silu_mul(gate_up: Tensor) -> Tensor:  # [num_rows, 2 * size] -> [num_rows, size]
    """silu(gate) * up; compiled for float32 on the CPU."""
    if not runs_compiled(gate_up):
        return silu_mul_reference(gate_up)
    out = torch.empty(gate_up.shape[0], gate_up.shape[1] // 2)
    _silu_mul_kernel(gate_up.numpy(), out.numpy())
    return out
