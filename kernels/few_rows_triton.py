"""The products of a layer for few rows as Triton kernels.

A program owns BLOCK_N rows of the weight and BLOCK_M rows of x, mostly all there are; else those
with the same rows of the weight come one after the other. Where two columns belong together (the
halves of a head, gate and up), its rows are BLOCK_N / 2 of the one kind, then their partners.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from structspec.kernels.few_rows_product import (
    halves,
    let_next_start,
    product,
    wait_for_inputs,
)
from structspec.kernels.few_rows_tiles import Tiles, choose_tiles


@triton.jit(do_not_specialize=["num_rows"])  # type: ignore[untyped-decorator]
def _norm_linear_kernel(
    residual_ptr: tl.tensor,
    norm_ptr: tl.tensor,
    weight_ptr: tl.tensor,
    out_ptr: tl.tensor,
    eps: tl.tensor,
    num_rows: tl.tensor,
    N: tl.constexpr,
    K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    first_m = tl.program_id(0) * BLOCK_M
    m, n = first_m + tl.arange(0, BLOCK_M), tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    rows = tl.minimum(n, N - 1)
    wait_for_inputs(weight_ptr, rows, 0, K, BLOCK_K, OVERLAP)
    acc, squares = product(
        residual_ptr, norm_ptr, weight_ptr, rows, first_m, 0, num_rows,
        K, K, True, BLOCK_M, BLOCK_N, BLOCK_K, NUM_STAGES,
    )  # fmt: skip
    let_next_start(OVERLAP)
    out = acc * (1.0 / tl.sqrt(squares / K + eps))[None, :]
    is_out = (n < N)[:, None] & (m < num_rows)[None, :]
    tl.store(out_ptr + m.to(tl.int64)[None, :] * N + n[:, None], out, mask=is_out)


@triton.jit(do_not_specialize=["num_rows"])  # type: ignore[untyped-decorator]
def _norm_gate_up_silu_kernel(
    residual_ptr: tl.tensor,
    norm_ptr: tl.tensor,
    weight_ptr: tl.tensor,
    out_ptr: tl.tensor,
    eps: tl.tensor,
    num_rows: tl.tensor,
    INNER: tl.constexpr,
    K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    HALF: tl.constexpr = BLOCK_N // 2
    first_m, first = tl.program_id(0) * BLOCK_M, tl.program_id(1) * HALF
    m, j = first_m + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    rows = tl.minimum(first + j % HALF, INNER - 1) + j // HALF * INNER
    wait_for_inputs(weight_ptr, rows, 0, K, BLOCK_K, OVERLAP)
    acc, squares = product(
        residual_ptr, norm_ptr, weight_ptr, rows, first_m, 0, num_rows,
        K, K, True, BLOCK_M, BLOCK_N, BLOCK_K, NUM_STAGES,
    )  # fmt: skip
    let_next_start(OVERLAP)
    gate, up = halves(acc * (1.0 / tl.sqrt(squares / K + eps))[None, :], BLOCK_M, BLOCK_N)
    out = gate / (1.0 + tl.exp(-gate)) * up
    n = first + tl.arange(0, HALF)
    is_out = (n < INNER)[:, None] & (m < num_rows)[None, :]
    out_type = out_ptr.dtype.element_ty
    tl.store(out_ptr + m[None, :] * INNER + n[:, None], out.to(out_type), mask=is_out)


@triton.jit(do_not_specialize=["num_rows"])  # type: ignore[untyped-decorator]
def _linear_add_kernel(
    x_ptr: tl.tensor,
    weight_ptr: tl.tensor,
    residual_ptr: tl.tensor,
    parts_ptr: tl.tensor,
    arrivals_ptr: tl.tensor,
    num_rows: tl.tensor,
    N: tl.constexpr,
    K: tl.constexpr,
    SPAN: tl.constexpr,
    NUM_SPLITS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    first_m, block, split = tl.program_id(0) * BLOCK_M, tl.program_id(1), tl.program_id(2)
    m, n = first_m + tl.arange(0, BLOCK_M), block * BLOCK_N + tl.arange(0, BLOCK_N)
    rows = tl.minimum(n, N - 1)
    wait_for_inputs(weight_ptr, rows, split * SPAN, K, BLOCK_K, OVERLAP)
    acc, _ = product(
        x_ptr, x_ptr, weight_ptr, rows, first_m, split * SPAN, num_rows,
        K, SPAN, False, BLOCK_M, BLOCK_N, BLOCK_K, NUM_STAGES,
    )  # fmt: skip
    let_next_start(OVERLAP)
    place = m[None, :] * N + n[:, None]
    is_out = (n < N)[:, None] & (m < num_rows)[None, :]
    is_last = split == 0
    arrivals_ptr += block * tl.num_programs(0) + tl.program_id(0)
    if NUM_SPLITS > 1:
        tl.store(parts_ptr + split * num_rows * N + place, acc, mask=is_out)
        tl.debug_barrier()  # all the program's threads have stored before one of them says so
        is_last = tl.atomic_add(arrivals_ptr, 1, sem="acq_rel") == NUM_SPLITS - 1
    if is_last:
        if NUM_SPLITS > 1:
            acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
            for part in range(NUM_SPLITS):  # in this order, whoever came last
                part_ptr = parts_ptr + part * num_rows * N
                acc += tl.load(part_ptr + place, mask=is_out, other=0.0, cache_modifier=".cg")
            tl.store(arrivals_ptr, 0)
        residual = tl.load(residual_ptr + place, mask=is_out, other=0.0)
        out = (residual.to(tl.float32) + acc).to(residual.dtype)
        tl.store(residual_ptr + place, out, mask=is_out)


@triton.jit(do_not_specialize=["num_rows"])  # type: ignore[untyped-decorator]
def _norm_qkv_rotate_store_kernel(
    residual_ptr: tl.tensor,
    norm_ptr: tl.tensor,
    weight_ptr: tl.tensor,
    bias_ptr: tl.tensor,
    cos_ptr: tl.tensor,
    sin_ptr: tl.tensor,
    positions_ptr: tl.tensor,
    slot_mapping_ptr: tl.tensor,
    qkv_ptr: tl.tensor,
    keys_ptr: tl.tensor,
    values_ptr: tl.tensor,
    eps: tl.tensor,
    num_rows: tl.tensor,
    K: tl.constexpr,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    HALF: tl.constexpr = HEAD_DIM // 2
    BLOCK_HALF: tl.constexpr = BLOCK_N // 2
    first_m = tl.program_id(0) * BLOCK_M
    head, first = tl.program_id(1), tl.program_id(2) * BLOCK_HALF
    m, j = first_m + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    rows = head * HEAD_DIM + tl.minimum(first + j % BLOCK_HALF, HALF - 1) + j // BLOCK_HALF * HALF
    wait_for_inputs(weight_ptr, rows, 0, K, BLOCK_K, OVERLAP)
    slot = tl.load(slot_mapping_ptr + m, mask=m < num_rows, other=-1)
    position = tl.load(positions_ptr + m, mask=slot >= 0, other=0)
    acc, squares = product(
        residual_ptr, norm_ptr, weight_ptr, rows, first_m, 0, num_rows,
        K, K, True, BLOCK_M, BLOCK_N, BLOCK_K, NUM_STAGES,
    )  # fmt: skip
    let_next_start(OVERLAP)
    acc *= (1.0 / tl.sqrt(squares / K + eps))[None, :]
    if HAS_BIAS:
        acc += tl.load(bias_ptr + rows).to(tl.float32)[:, None]
    a, b = halves(acc, BLOCK_M, BLOCK_N)

    i = first + tl.arange(0, BLOCK_HALF)
    num_rotated = tl.where(head < NUM_HEADS + NUM_KV_HEADS, HALF, 0)  # values are not
    is_rotated = (i < num_rotated)[:, None] & (slot >= 0)[None, :]
    angle = position[None, :] * HALF + i[:, None]
    cos = tl.load(cos_ptr + angle, mask=is_rotated, other=1.0)
    sin = tl.load(sin_ptr + angle, mask=is_rotated, other=0.0)
    out_type = qkv_ptr.dtype.element_ty
    low, high = (a * cos - b * sin).to(out_type), (b * cos + a * sin).to(out_type)

    WIDTH: tl.constexpr = (NUM_HEADS + 2 * NUM_KV_HEADS) * HEAD_DIM
    out_ptr = qkv_ptr
    start = m.to(tl.int64) * WIDTH + head * HEAD_DIM
    if head >= NUM_HEADS:
        kv_head = (head - NUM_HEADS) % NUM_KV_HEADS
        block = slot.to(tl.int64) // BLOCK_SIZE * NUM_KV_HEADS + kv_head
        start = (block * BLOCK_SIZE + slot % BLOCK_SIZE) * HEAD_DIM
        out_ptr = keys_ptr
        if head >= NUM_HEADS + NUM_KV_HEADS:
            out_ptr = values_ptr
    place = start[None, :] + i[:, None]
    is_number = (i < HALF)[:, None] & (slot >= 0)[None, :]
    tl.store(out_ptr + place, low, mask=is_number)
    tl.store(out_ptr + place + HALF, high, mask=is_number)


@functools.cache
def _can_overlap(device: torch.device) -> bool:
    is_nvidia = device.type == "cuda" and torch.version.cuda is not None
    return is_nvidia and torch.cuda.get_device_capability(device) >= (9, 0)


def _choose_tiles(num_rows: int, weight: Tensor, *, can_split: bool = False) -> Tiles:
    num_columns, size = weight.shape
    return choose_tiles(
        num_rows,
        num_columns,
        size,
        weight.dtype,
        can_split=can_split,
        can_overlap=_can_overlap(weight.device),
    )


def _grid(num_rows: int, num_columns: int, tiles: Tiles) -> tuple[int, int]:
    return triton.cdiv(num_rows, tiles.block_m), triton.cdiv(num_columns, tiles.block_n)


def _options(tiles: Tiles) -> dict[str, Any]:
    options: dict[str, Any] = {
        "BLOCK_M": tiles.block_m,
        "BLOCK_K": tiles.block_k,
        "NUM_STAGES": tiles.num_stages,
        "OVERLAP": tiles.overlap,
        "num_warps": tiles.num_warps,
    }
    if tiles.overlap:  # the interpreter does not know the option
        options["launch_pdl"] = True
    return options


def norm_linear_triton(
    residual: Tensor, norm_weight: Tensor, eps: float, weight: Tensor, tiles: Tiles | None = None
) -> Tensor:
    """The kernel; on a CPU it needs Triton's interpreter."""
    num_rows, num_columns, size = len(residual), *weight.shape
    out = residual.new_empty(num_rows, num_columns, dtype=torch.float32)
    if num_rows > 0:
        tiles = tiles or _choose_tiles(num_rows, weight)
        _norm_linear_kernel[_grid(num_rows, num_columns, tiles)](
            residual,
            norm_weight,
            weight,
            out,
            eps,
            num_rows,
            N=num_columns,
            K=size,
            BLOCK_N=tiles.block_n,
            **_options(tiles),
        )
    return out


def norm_gate_up_silu_triton(
    residual: Tensor, norm_weight: Tensor, eps: float, weight: Tensor, tiles: Tiles | None = None
) -> Tensor:
    """The kernel; on a CPU it needs Triton's interpreter."""
    num_rows, num_columns, size = len(residual), *weight.shape
    out = residual.new_empty(num_rows, num_columns // 2)
    if num_rows > 0:
        tiles = tiles or _choose_tiles(num_rows, weight)
        _norm_gate_up_silu_kernel[_grid(num_rows, num_columns, tiles)](
            residual,
            norm_weight,
            weight,
            out,
            eps,
            num_rows,
            INNER=num_columns // 2,
            K=size,
            BLOCK_N=tiles.block_n,
            **_options(tiles),
        )
    return out


def linear_add_triton(
    x: Tensor, weight: Tensor, residual: Tensor, arrivals: Tensor, tiles: Tiles | None = None
) -> None:
    """The kernel; on a CPU it needs Triton's interpreter."""
    num_rows, num_columns, size = len(x), *weight.shape
    if num_rows == 0:
        return
    tiles = tiles or _choose_tiles(num_rows, weight, can_split=True)
    span = triton.cdiv(triton.cdiv(size, tiles.num_splits), tiles.block_k) * tiles.block_k
    grid = (*_grid(num_rows, num_columns, tiles), tiles.num_splits)
    assert len(arrivals) >= grid[0] * grid[1]
    num_parts = tiles.num_splits if tiles.num_splits > 1 else 0
    parts = x.new_empty(num_parts, num_rows, num_columns, dtype=torch.float32)
    _linear_add_kernel[grid](
        x,
        weight,
        residual,
        parts,
        arrivals,
        num_rows,
        N=num_columns,
        K=size,
        SPAN=span,
        NUM_SPLITS=tiles.num_splits,
        BLOCK_N=tiles.block_n,
        **_options(tiles),
    )


def norm_qkv_rotate_store_triton(
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
    tiles: Tiles | None = None,
) -> Tensor:
    """The kernel, some programs per head; on a CPU it needs Triton's interpreter."""
    num_rows, num_columns, size = len(residual), *weight.shape
    _, num_kv_heads, block_size, head_dim = keys.shape
    qkv = residual.new_empty(num_rows, num_columns)
    if num_rows == 0:
        return qkv
    tiles = tiles or _choose_tiles(num_rows, weight)
    smallest = 2 if tiles.block_m == 1 else 16
    block_n = min(tiles.block_n, max(smallest, 2 * triton.next_power_of_2(head_dim // 2)))
    num_blocks = triton.cdiv(num_rows, tiles.block_m)
    grid = (num_blocks, num_columns // head_dim, triton.cdiv(head_dim, block_n))
    _norm_qkv_rotate_store_kernel[grid](
        residual,
        norm_weight,
        weight,
        weight if bias is None else bias,
        cos,
        sin,
        positions,
        slot_mapping,
        qkv,
        keys,
        values,
        eps,
        num_rows,
        K=size,
        NUM_HEADS=num_columns // head_dim - 2 * num_kv_heads,
        NUM_KV_HEADS=num_kv_heads,
        HEAD_DIM=head_dim,
        BLOCK_SIZE=block_size,
        HAS_BIAS=bias is not None,
        BLOCK_N=block_n,
        **_options(tiles),
    )
    return qkv
