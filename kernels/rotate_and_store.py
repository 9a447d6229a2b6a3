"""Give queries and keys their position and put keys and values into the paged cache.

qkv[i] = [query heads | key heads | value heads], each head of head_dim numbers.
Query and key heads are first RMS-normalised where a norm weight is given (Qwen3), then rotated:
    [a, b] -> [a cos - b sin, b cos + a sin]   with a, b its halves, cos and sin of position i
Queries stay in qkv; keys and values go to block slot // block_size, place slot % block_size.
A slot of -1 marks a padding row: nothing is stored, its queries may hold anything.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from structspec.kernels.compiled import compiled, runs_compiled


def _normed(heads: Tensor, weight: Tensor, eps: float) -> Tensor:
    if not len(weight):
        return heads
    wide = heads.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(heads.dtype) * weight


def _rotated(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = heads.float().chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(heads.dtype)


def rotate_and_store_reference(
    qkv: Tensor,
    query_norm: Tensor,
    key_norm: Tensor,
    eps: float,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor,
    slot_mapping: Tensor,
    keys: Tensor,
    values: Tensor,
) -> None:
    """The semantics in plain torch."""
    _, num_kv_heads, block_size, head_dim = keys.shape
    heads = qkv.view(len(qkv), -1, head_dim)
    num_heads = heads.shape[1] - 2 * num_kv_heads
    sizes = [num_heads, num_kv_heads, num_kv_heads]
    query, key, value = torch.split(heads, sizes, dim=1)
    cos, sin = cos[positions].unsqueeze(1), sin[positions].unsqueeze(1)
    query.copy_(_rotated(_normed(query, query_norm, eps), cos, sin))
    key = _rotated(_normed(key, key_norm, eps), cos, sin)
    is_stored = slot_mapping >= 0
    slots = slot_mapping[is_stored]
    keys[slots // block_size, :, slots % block_size] = key[is_stored]
    values[slots // block_size, :, slots % block_size] = value[is_stored]


@compiled
def _norm_head(row: Any, start: Any, weight: Any, eps: Any) -> None:
    head_dim = len(weight)
    squares = np.float32(0.0)
    for i in range(start, start + head_dim):
        squares += row[i] * row[i]
    scale = np.float32(1.0) / np.sqrt(squares / np.float32(head_dim) + eps)
    for i in range(head_dim):
        row[start + i] *= scale * weight[i]


@compiled
def _rotate_and_store_kernel(
    qkv: Any,
    query_norm: Any,
    key_norm: Any,
    eps: Any,
    cos: Any,
    sin: Any,
    positions: Any,
    slot_mapping: Any,
    keys: Any,
    values: Any,
) -> None:
    _, num_kv_heads, block_size, head_dim = keys.shape
    half = head_dim // 2
    num_rotated = qkv.shape[1] // head_dim - num_kv_heads
    num_heads = num_rotated - num_kv_heads
    for row in range(len(slot_mapping)):
        slot = slot_mapping[row]
        if slot < 0:
            continue
        position = positions[row]
        block, place = slot // block_size, slot % block_size
        for head in range(num_rotated):
            start = head * head_dim
            if head < num_heads and len(query_norm):
                _norm_head(qkv[row], start, query_norm, eps)
            elif head >= num_heads and len(key_norm):
                _norm_head(qkv[row], start, key_norm, eps)
            for i in range(half):
                a, b = qkv[row, start + i], qkv[row, start + half + i]
                qkv[row, start + i] = a * cos[position, i] - b * sin[position, i]
                qkv[row, start + half + i] = b * cos[position, i] + a * sin[position, i]
        for head in range(num_kv_heads):
            start = (num_heads + head) * head_dim
            for i in range(head_dim):
                keys[block, head, place, i] = qkv[row, start + i]
                values[block, head, place, i] = qkv[row, start + num_kv_heads * head_dim + i]


@triton.jit  # type: ignore[untyped-decorator]
def _rotate_and_store_triton_kernel(
    qkv_ptr: tl.tensor,
    query_norm_ptr: tl.tensor,
    key_norm_ptr: tl.tensor,
    eps: tl.tensor,
    cos_ptr: tl.tensor,
    sin_ptr: tl.tensor,
    positions_ptr: tl.tensor,
    slot_mapping_ptr: tl.tensor,
    keys_ptr: tl.tensor,
    values_ptr: tl.tensor,
    block_size: tl.tensor,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
    HAS_QUERY_NORM: tl.constexpr,
    HAS_KEY_NORM: tl.constexpr,
) -> None:
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    slot = tl.load(slot_mapping_ptr + row)
    if slot < 0:
        return
    HALF: tl.constexpr = HEAD_DIM // 2
    i = tl.arange(0, BLOCK_HALF)
    is_inside = i < HALF
    head_ptr = qkv_ptr + (row * (NUM_HEADS + 2 * NUM_KV_HEADS) + head) * HEAD_DIM
    a = tl.load(head_ptr + i, mask=is_inside, other=0.0)
    b = tl.load(head_ptr + HALF + i, mask=is_inside, other=0.0)
    kv_head = head - NUM_HEADS
    if kv_head < NUM_KV_HEADS:
        if HAS_QUERY_NORM and kv_head < 0:
            a, b = _normed_halves(a, b, query_norm_ptr, eps, HALF, BLOCK_HALF)
        if HAS_KEY_NORM and kv_head >= 0:
            a, b = _normed_halves(a, b, key_norm_ptr, eps, HALF, BLOCK_HALF)
        angle = tl.load(positions_ptr + row) * HALF + i
        cos = tl.load(cos_ptr + angle, mask=is_inside, other=0.0)
        sin = tl.load(sin_ptr + angle, mask=is_inside, other=0.0)
        wide_a, wide_b = a.to(tl.float32), b.to(tl.float32)
        a = (wide_a * cos - wide_b * sin).to(a.dtype)
        b = (wide_b * cos + wide_a * sin).to(b.dtype)
    out_ptr = head_ptr
    place = slot % block_size
    if kv_head >= NUM_KV_HEADS:
        first = (slot // block_size * NUM_KV_HEADS + kv_head - NUM_KV_HEADS) * block_size + place
        out_ptr = values_ptr + first * HEAD_DIM
    elif kv_head >= 0:
        first = (slot // block_size * NUM_KV_HEADS + kv_head) * block_size + place
        out_ptr = keys_ptr + first * HEAD_DIM
    tl.store(out_ptr + i, a, mask=is_inside)
    tl.store(out_ptr + HALF + i, b, mask=is_inside)


@triton.jit  # type: ignore[untyped-decorator]
def _normed_halves(
    a: tl.tensor,
    b: tl.tensor,
    weight_ptr: tl.tensor,
    eps: tl.tensor,
    HALF: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
) -> tl.tensor:
    i = tl.arange(0, BLOCK_HALF)
    wide_a, wide_b = a.to(tl.float32), b.to(tl.float32)
    squares = tl.sum(wide_a * wide_a, 0) + tl.sum(wide_b * wide_b, 0)
    scale = 1.0 / tl.sqrt(squares / (2 * HALF) + eps)
    weight_a = tl.load(weight_ptr + i, mask=i < HALF, other=0.0)
    weight_b = tl.load(weight_ptr + HALF + i, mask=i < HALF, other=0.0)
    return (wide_a * scale).to(a.dtype) * weight_a, (wide_b * scale).to(b.dtype) * weight_b


def rotate_and_store_triton(
    qkv: Tensor,
    query_norm: Tensor,
    key_norm: Tensor,
    eps: float,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor,
    slot_mapping: Tensor,
    keys: Tensor,
    values: Tensor,
) -> None:
    """The kernel, one program per head of a row; on a CPU it needs Triton's interpreter."""
    _, num_kv_heads, block_size, head_dim = keys.shape
    num_heads = qkv.shape[1] // head_dim - 2 * num_kv_heads
    if len(qkv) == 0:
        return
    _rotate_and_store_triton_kernel[(len(qkv), num_heads + 2 * num_kv_heads)](
        qkv,
        query_norm,
        key_norm,
        eps,
        cos,
        sin,
        positions,
        slot_mapping,
        keys,
        values,
        block_size,
        NUM_HEADS=num_heads,
        NUM_KV_HEADS=num_kv_heads,
        HEAD_DIM=head_dim,
        BLOCK_HALF=triton.next_power_of_2(head_dim // 2),
        HAS_QUERY_NORM=len(query_norm) > 0,
        HAS_KEY_NORM=len(key_norm) > 0,
        num_warps=1,
    )


def rotate_and_store(
    qkv: Tensor,  # [num_rows, (num_heads + 2 * num_kv_heads) * head_dim], changed in place
    query_norm: Tensor,  # [head_dim], or [0] for none
    key_norm: Tensor,  # [head_dim], or [0] for none
    eps: float,
    cos: Tensor,  # [max_model_len, head_dim / 2] float32
    sin: Tensor,  # [max_model_len, head_dim / 2] float32
    positions: Tensor,  # [num_rows] int64
    slot_mapping: Tensor,  # [num_rows] int64
    keys: Tensor,  # [num_blocks, num_kv_heads, block_size, head_dim], changed in place
    values: Tensor,  # [num_blocks, num_kv_heads, block_size, head_dim], changed in place
) -> None:
    """Rotate queries in place, rotate and store keys, store values; compiled on the CPU."""
    tensors = (cos, sin, positions, slot_mapping, keys, values)
    assert qkv.is_contiguous() and keys.is_contiguous() and values.is_contiguous()
    if qkv.is_cuda:
        rotate_and_store_triton(qkv, query_norm, key_norm, eps, *tensors)
        return
    if not runs_compiled(qkv):
        rotate_and_store_reference(qkv, query_norm, key_norm, eps, *tensors)
        return
    _rotate_and_store_kernel(
        qkv.numpy(),
        query_norm.numpy(),
        key_norm.numpy(),
        np.float32(eps),
        *(tensor.numpy() for tensor in tensors),
    )
