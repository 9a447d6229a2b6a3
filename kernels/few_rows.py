"""The products of a layer for few rows, each with what stands before and behind it.

    norm_qkv_rotate_store   qkv = norm(residual) W^T + bias; queries and keys rotated; k, v stored
    linear_add              residual += x W^T
    norm_gate_up_silu       gate, up = norm(residual) W^T;  silu(gate) * up
    norm_linear             norm(residual) W^T, in float32
    norm(residual)[i]       residual[i] / sqrt(mean(residual[i]^2) + eps) * norm_weight

Weights are [num_columns, size]. Decoding and verification have few rows: what counts then is how
fast weights are read, and how many kernels wait for one another. On the GPU these are one kernel
each for up to MAX_ROWS rows, with float32 sums that are rounded once, at the end; float16 numbers
must not overflow when they are multiplied by the norm's weight. A row's result depends on the other
rows only by their number. Elsewhere it is the reference that runs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from structspec.kernels.add_rms_norm import add_rms_norm_reference
from structspec.kernels.few_rows_tiles import MAX_ROWS
from structspec.kernels.few_rows_triton import (
    linear_add_triton,
    norm_gate_up_silu_triton,
    norm_linear_triton,
    norm_qkv_rotate_store_triton,
)
from structspec.kernels.rotate_and_store import rotate_and_store_reference
from structspec.kernels.silu_mul import silu_mul_reference


def _norm(residual: Tensor, weight: Tensor, eps: float) -> Tensor:
    return add_rms_norm_reference(torch.zeros_like(residual), residual.clone(), weight, eps)


def norm_linear_reference(
    residual: Tensor, norm_weight: Tensor, eps: float, weight: Tensor
) -> Tensor:
    """The formula in plain torch."""
    return torch.nn.functional.linear(_norm(residual, norm_weight, eps), weight).float()


def norm_gate_up_silu_reference(
    residual: Tensor, norm_weight: Tensor, eps: float, weight: Tensor
) -> Tensor:
    """The formula in plain torch."""
    normed = _norm(residual, norm_weight, eps)
    return silu_mul_reference(torch.nn.functional.linear(normed, weight))


def linear_add_reference(x: Tensor, weight: Tensor, residual: Tensor) -> None:
    """The formula in plain torch."""
    residual += torch.nn.functional.linear(x, weight)


def norm_qkv_rotate_store_reference(
    residual: Tensor,
    norm_weight: Tensor,
    eps: float,
    weight: Tensor,
    bias: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor,
    slot_mapping: Tensor,
    keys: Tensor,
    values: Tensor,
) -> Tensor:
    """The formula in plain torch."""
    qkv = torch.nn.functional.linear(_norm(residual, norm_weight, eps), weight, bias)
    none = qkv.new_empty(0)
    places = (cos, sin, positions, slot_mapping, keys, values)
    rotate_and_store_reference(qkv, none, none, eps, *places)
    return qkv


def norm_linear(
    residual: Tensor,  # [num_rows, size]
    norm_weight: Tensor,  # [size]
    eps: float,
    weight: Tensor,  # [num_columns, size]
) -> Tensor:
    """The product [num_rows, num_columns] in float32, as it was summed."""
    _check(residual, weight)
    if residual.is_cuda:
        return norm_linear_triton(residual, norm_weight, eps, weight)
    return norm_linear_reference(residual, norm_weight, eps, weight)


def norm_gate_up_silu(
    residual: Tensor,  # [num_rows, size]
    norm_weight: Tensor,  # [size]
    eps: float,
    weight: Tensor,  # [2 * inner_size, size]: the gate's rows, then those of up
) -> Tensor:
    """The gated activation of an MLP, [num_rows, inner_size]."""
    _check(residual, weight)
    if residual.is_cuda:
        return norm_gate_up_silu_triton(residual, norm_weight, eps, weight)
    return norm_gate_up_silu_reference(residual, norm_weight, eps, weight)


def linear_add(
    x: Tensor,  # [num_rows, size]
    weight: Tensor,  # [num_columns, size]
    residual: Tensor,  # [num_rows, num_columns], changed in place
    arrivals: Tensor,
) -> None:
    """Add a product to the residual stream.

    `arrivals` is `make_arrivals`' and may serve any number of calls, one after the other.
    """
    _check(x, weight)
    assert residual.is_contiguous()
    if x.is_cuda:
        linear_add_triton(x, weight, residual, arrivals)
    else:
        linear_add_reference(x, weight, residual)


def make_arrivals(num_columns: int, device: torch.device) -> Tensor:
    """Counts which parts of a sum are there, so that the last one adds them up; 0 between calls."""
    # One for each tile of an output: at least 16 columns wide, and at least 16 rows high.
    num_tiles = max(num_columns, MAX_ROWS // 16)
    return torch.zeros(num_tiles, dtype=torch.int32, device=device)


def norm_qkv_rotate_store(
    residual: Tensor,  # [num_rows, size]
    norm_weight: Tensor,  # [size]
    eps: float,
    weight: Tensor,  # [(num_heads + 2 * num_kv_heads) * head_dim, size]
    bias: Tensor | None,  # [(num_heads + 2 * num_kv_heads) * head_dim]
    cos: Tensor,  # [max_model_len, head_dim / 2] float32
    sin: Tensor,  # [max_model_len, head_dim / 2] float32
    positions: Tensor,  # [num_rows] int
    slot_mapping: Tensor,  # [num_rows] int; -1 for padding, of which nothing is stored
    keys: Tensor,  # [num_blocks, num_kv_heads, block_size, head_dim], changed in place
    values: Tensor,  # [num_blocks, num_kv_heads, block_size, head_dim], changed in place
) -> Tensor:
    """Rotated queries in the columns of a [num_rows, len(weight)]; the rest may hold anything."""
    _check(residual, weight)
    assert keys.is_contiguous() and values.is_contiguous()
    products = (residual, norm_weight, eps, weight, bias)
    places = (cos, sin, positions, slot_mapping, keys, values)
    if residual.is_cuda:
        return norm_qkv_rotate_store_triton(*products, *places)
    return norm_qkv_rotate_store_reference(*products, *places)


def _check(x: Tensor, weight: Tensor) -> None:
    assert len(x) <= MAX_ROWS and x.shape[1] == weight.shape[1]
    assert x.is_contiguous() and weight.is_contiguous()
