"""A matrix product whose rows have the same bits however many rows there are, and which they are.

out[m, n] = sum_k x[m, k] weight[n, k] + bias[n]        x: [num_rows, in_size]
                                                        weight: [out_size, in_size]

A library chooses tiles, splits of k and instructions by the number of rows, and each choice adds in
another order. Here one program owns a tile of the output and runs through k from the first to the
last number, and its tile depends on the weight alone (arXiv 2506.09501 measures what is lost
otherwise). So a token of a decode step gets what it gets inside a prompt, a batch or a span of
drafts. The price: few rows fill a tile badly, and narrow weights leave multiprocessors idle. Only
how far a program reads ahead may follow the number of rows, since no sum sees it.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

_GROUP_M = 8  # tiles of rows that share a tile of the weight while it is in the L2 cache
_NUM_WIDE = 16384  # outputs that fill a GPU even in wide tiles: 128 programs of 128
_MAX_STAGES = 8


@dataclass(frozen=True, slots=True)
class Tile:
    """What one program computes, and with how many warps."""

    block_m: int  # at least 64 with whole warpgroups: fewer rows take another instruction
    block_n: int
    block_k: int
    num_warps: int


def choose_tile(out_size: int, dtype: torch.dtype) -> Tile:
    """The tile of every product with a weight of this size and type, whatever the rows."""
    if dtype == torch.float32:  # no tensor cores: a high tile costs as much as its rows
        return Tile(32, 64, 16, num_warps=4)
    if out_size >= _NUM_WIDE:
        return Tile(128, 128, 64, num_warps=8)
    return Tile(128, 64, 64, num_warps=4)


@dataclass(frozen=True, slots=True)
class Multiprocessors:
    """What a GPU has for its programs."""

    num: int
    shared_bytes: int  # of each


@functools.cache
def _multiprocessors(device: torch.device) -> Multiprocessors:
    if device.type != "cuda":  # the interpreter has no stages
        return Multiprocessors(1, 0)
    properties = torch.cuda.get_device_properties(device)
    return Multiprocessors(
        properties.multi_processor_count, properties.shared_memory_per_multiprocessor
    )


def choose_num_stages(
    tile: Tile, num_programs: int, itemsize: int, multiprocessors: Multiprocessors
) -> int:
    """How many steps of k a program holds: all that fit where it is alone on a multiprocessor.

    Few programs must have much on its way to be as fast as the memory; many take turns, two on each
    multiprocessor.
    """
    num_sharing = 1 if num_programs <= multiprocessors.num else 2
    room = multiprocessors.shared_bytes // num_sharing - 1024  # each program pays a reserved KiB
    stage_bytes = (tile.block_m + tile.block_n) * tile.block_k * itemsize
    return max(2, min(_MAX_STAGES, room // stage_bytes))


def invariant_linear_reference(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, out_dtype: torch.dtype | None = None
) -> Tensor:
    """The formula in plain torch, in float32; its bits may depend on the number of rows."""
    out = x.float() @ weight.float().T
    if bias is not None:
        out += bias.float()
    return out.to(out_dtype or x.dtype)


@triton.jit(do_not_specialize=["num_rows"])  # type: ignore[untyped-decorator]
def _invariant_linear_kernel(
    x_ptr: tl.tensor,
    weight_ptr: tl.tensor,
    bias_ptr: tl.tensor,
    out_ptr: tl.tensor,
    num_rows: tl.tensor,
    out_size: tl.tensor,
    in_size: tl.tensor,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    IS_WHOLE_K: tl.constexpr,
) -> None:
    num_tiles_m, num_tiles_n = tl.cdiv(num_rows, BLOCK_M), tl.cdiv(out_size, BLOCK_N)
    program = tl.program_id(0)
    first_m = program // (GROUP_M * num_tiles_n) * GROUP_M
    height = tl.minimum(num_tiles_m - first_m, GROUP_M)
    place = program % (GROUP_M * num_tiles_n)
    tile_m, tile_n = first_m + place % height, place // height

    m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    is_m, is_n = m < num_rows, n < out_size
    x_ptrs = x_ptr + m.to(tl.int64)[:, None] * in_size + k[None, :]
    weight_ptrs = weight_ptr + n.to(tl.int64)[:, None] * in_size + k[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, in_size, BLOCK_K):
        if IS_WHOLE_K:
            x = tl.load(x_ptrs, mask=is_m[:, None], other=0.0)
            weight = tl.load(weight_ptrs, mask=is_n[:, None], other=0.0)
        else:
            is_k = k[None, :] < in_size - start
            x = tl.load(x_ptrs, mask=is_m[:, None] & is_k, other=0.0)
            weight = tl.load(weight_ptrs, mask=is_n[:, None] & is_k, other=0.0)
        acc = tl.dot(x, tl.trans(weight), acc, input_precision="ieee")
        x_ptrs += BLOCK_K
        weight_ptrs += BLOCK_K
    if HAS_BIAS:
        acc += tl.load(bias_ptr + n, mask=is_n, other=0.0).to(tl.float32)[None, :]
    out_ptrs = out_ptr + m.to(tl.int64)[:, None] * out_size + n[None, :]
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=is_m[:, None] & is_n[None, :])


def invariant_linear_triton(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    out_dtype: torch.dtype | None = None,
    tile: Tile | None = None,
    num_stages: int | None = None,
) -> Tensor:
    """The kernel, one program per tile; on a CPU it needs Triton's interpreter."""
    num_rows, in_size = x.shape
    out_size = len(weight)
    out = torch.empty(num_rows, out_size, dtype=out_dtype or x.dtype, device=x.device)
    if tile is None:
        tile = choose_tile(out_size, weight.dtype)
    num_programs = triton.cdiv(num_rows, tile.block_m) * triton.cdiv(out_size, tile.block_n)
    if num_stages is None:
        num_stages = choose_num_stages(
            tile, num_programs, weight.itemsize, _multiprocessors(x.device)
        )
    if num_programs > 0:
        _invariant_linear_kernel[(num_programs,)](
            x,
            weight,
            weight if bias is None else bias,
            out,
            num_rows,
            out_size,
            in_size,
            BLOCK_M=tile.block_m,
            BLOCK_N=tile.block_n,
            BLOCK_K=tile.block_k,
            GROUP_M=_GROUP_M,
            HAS_BIAS=bias is not None,
            IS_WHOLE_K=in_size % tile.block_k == 0,
            num_warps=tile.num_warps,
            num_stages=num_stages,
        )
    return out


def invariant_linear(
    x: Tensor,  # [num_rows, in_size]
    weight: Tensor,  # [out_size, in_size]
    bias: Tensor | None = None,  # [out_size]
    *,
    out_dtype: torch.dtype | None = None,  # that of x, or float32
) -> Tensor:
    """x weight^T + bias, [num_rows, out_size], summed in float32; invariant on a GPU alone."""
    assert x.is_contiguous() and weight.is_contiguous() and x.dtype == weight.dtype
    function = invariant_linear_triton if x.is_cuda else invariant_linear_reference
    return function(x, weight, bias, out_dtype=out_dtype)
