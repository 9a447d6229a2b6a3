"""Paged attention as Triton kernels: online softmax over tiles of a context, split over programs.

One program takes BLOCK_Q query rows of one request with all heads of one kv head, as the rows of
one matrix, and one of NUM_SPLITS parts of the context; a second kernel adds the parts up:

    part s:   peak_s = max score,  total_s = sum exp(score - peak_s),  acc_s = sum exp(…) value
    out     = sum_s exp(peak_s - peak) acc_s / sum_s exp(peak_s - peak) total_s

(FlashAttention-2, arXiv 2307.08691; FlashDecoding for the splits.) A row's result depends on the
number of splits, never on other rows. Programs are laid out by upper bounds that the shapes give,
so that a launch can be captured in a CUDA graph: request r's first block is cu[r] / BLOCK_Q + r.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

LOG2_E = 1.4426950408889634
MAX_TREE_ROWS = 63  # bits of an int64 that may be shifted by


@triton.jit  # type: ignore[untyped-decorator]
def _find_request(
    cu_seqlens_q_ptr: tl.tensor, block: tl.tensor, num_requests: tl.tensor, BLOCK_Q: tl.constexpr
) -> tl.tensor:
    """The last request whose first block is not behind this one."""
    low, high = 0, num_requests
    while high - low > 1:
        middle = (low + high) // 2
        first = tl.load(cu_seqlens_q_ptr + middle) // BLOCK_Q + middle
        if first <= block:
            low = middle
        else:
            high = middle
    return low


@triton.jit  # type: ignore[untyped-decorator]
def _attend_kernel(
    qkv_ptr: tl.tensor,
    keys_ptr: tl.tensor,
    values_ptr: tl.tensor,
    cu_seqlens_q_ptr: tl.tensor,
    context_lens_ptr: tl.tensor,
    block_tables_ptr: tl.tensor,
    tree_ptr: tl.tensor,
    out_ptr: tl.tensor,
    parts_ptr: tl.tensor,
    peaks_ptr: tl.tensor,
    totals_ptr: tl.tensor,
    scale: tl.tensor,
    num_requests: tl.tensor,
    table_width: tl.tensor,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_M: tl.constexpr,
    TILE: tl.constexpr,
    NUM_SPLITS: tl.constexpr,
    HAS_TREE: tl.constexpr,
) -> None:
    GROUP: tl.constexpr = NUM_HEADS // NUM_KV_HEADS
    block, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    request = _find_request(cu_seqlens_q_ptr, block, num_requests, BLOCK_Q)
    start = tl.load(cu_seqlens_q_ptr + request)
    num_rows = tl.load(cu_seqlens_q_ptr + request + 1) - start
    first_row = (block - start // BLOCK_Q - request) * BLOCK_Q
    if first_row >= num_rows:
        return
    context = tl.load(context_lens_ptr + request)
    before = context - num_rows  # keys from earlier steps

    m = tl.arange(0, BLOCK_M)
    d = tl.arange(0, BLOCK_D)
    row, head = first_row + m // GROUP, kv_head * GROUP + m % GROUP
    is_row = (m < BLOCK_Q * GROUP) & (row < num_rows)
    width: tl.constexpr = (NUM_HEADS + 2 * NUM_KV_HEADS) * HEAD_DIM
    query = tl.load(
        qkv_ptr + (start + row)[:, None] * width + head[:, None] * HEAD_DIM + d[None, :],
        mask=is_row[:, None] & (d < HEAD_DIM)[None, :],
        other=0.0,
    )
    tree = tl.zeros((BLOCK_M,), tl.int64)
    if HAS_TREE:
        tree = tl.load(tree_ptr + start + row, mask=is_row, other=0)

    end = tl.minimum(context, before + first_row + BLOCK_Q)
    if HAS_TREE:
        end = context
    num_tiles = tl.cdiv(tl.cdiv(context, TILE), NUM_SPLITS)  # of one part, for every row alike
    first_key = split * num_tiles * TILE
    end = tl.minimum(end, first_key + num_tiles * TILE)

    peak = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    for tile in range(first_key, end, TILE):
        t = tile + tl.arange(0, TILE)
        is_key = t < end
        table = block_tables_ptr + request.to(tl.int64) * table_width
        number = tl.load(table + t // BLOCK_SIZE, mask=is_key, other=0).to(tl.int64)
        place = ((number * NUM_KV_HEADS + kv_head) * BLOCK_SIZE + t % BLOCK_SIZE) * HEAD_DIM
        is_number = is_key[:, None] & (d < HEAD_DIM)[None, :]
        key = tl.load(keys_ptr + place[:, None] + d[None, :], mask=is_number, other=0.0)
        scores = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
        if HAS_TREE:
            bit = tl.maximum(t - before, 0).to(tl.int64)
            is_seen = (t < before)[None, :] | (((tree[:, None] >> bit[None, :]) & 1) != 0)
        else:
            is_seen = t[None, :] <= (before + row)[:, None]
        scores = tl.where(is_seen & is_key[None, :], scores, float("-inf"))
        new_peak = tl.maximum(peak, tl.max(scores, 1))
        safe_peak = tl.where(new_peak == float("-inf"), 0.0, new_peak)
        shrink = tl.exp2(peak - safe_peak)
        weights = tl.exp2(scores - safe_peak[:, None])
        total = total * shrink + tl.sum(weights, 1)
        value = tl.load(values_ptr + place[:, None] + d[None, :], mask=is_number, other=0.0)
        acc = acc * shrink[:, None]
        acc += tl.dot(weights.to(value.dtype), value, input_precision="ieee")
        peak = new_peak

    place = (start + row).to(tl.int64) * NUM_HEADS + head
    is_out = is_row[:, None] & (d < HEAD_DIM)[None, :]
    if NUM_SPLITS == 1:
        out = acc / tl.where(is_row, total, 1.0)[:, None]
        out_type = out_ptr.dtype.element_ty
        tl.store(out_ptr + place[:, None] * HEAD_DIM + d[None, :], out.to(out_type), mask=is_out)
    else:
        part = place * NUM_SPLITS + split
        tl.store(parts_ptr + part[:, None] * HEAD_DIM + d[None, :], acc, mask=is_out)
        tl.store(peaks_ptr + part, peak, mask=is_row)
        tl.store(totals_ptr + part, total, mask=is_row)


@triton.jit  # type: ignore[untyped-decorator]
def _add_parts_kernel(
    parts_ptr: tl.tensor,
    peaks_ptr: tl.tensor,
    totals_ptr: tl.tensor,
    cu_seqlens_q_ptr: tl.tensor,
    out_ptr: tl.tensor,
    num_requests: tl.tensor,
    NUM_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    NUM_SPLITS: tl.constexpr,
    BLOCK_SPLITS: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    if row >= tl.load(cu_seqlens_q_ptr + num_requests):
        return  # padding
    place = row * NUM_HEADS + tl.program_id(1)
    s, d = tl.arange(0, BLOCK_SPLITS), tl.arange(0, BLOCK_D)
    is_part = s < NUM_SPLITS
    peaks = tl.load(peaks_ptr + place * NUM_SPLITS + s, mask=is_part, other=float("-inf"))
    totals = tl.load(totals_ptr + place * NUM_SPLITS + s, mask=is_part, other=0.0)
    shrink = tl.exp2(peaks - tl.max(peaks, 0))
    is_number = is_part[:, None] & (d < HEAD_DIM)[None, :]
    part = (place * NUM_SPLITS + s)[:, None] * HEAD_DIM + d[None, :]
    acc = tl.load(parts_ptr + part, mask=is_number, other=0.0)
    out = tl.sum(acc * shrink[:, None], 0) / tl.sum(totals * shrink, 0)
    out_type = out_ptr.dtype.element_ty
    tl.store(out_ptr + place * HEAD_DIM + d, out.to(out_type), mask=d < HEAD_DIM)


def paged_attention_triton(
    qkv: Tensor,
    keys: Tensor,
    values: Tensor,
    cu_seqlens_q: Tensor,
    context_lens: Tensor,
    block_tables: Tensor,
    scale: float,
    tree: Tensor | None = None,
    *,
    block_q: int | None = None,
    num_splits: int | None = None,
) -> Tensor:
    """The kernels; on a CPU they need Triton's interpreter.

    `block_q` and `num_splits` are chosen from the shapes alone where they are not given; the values
    of the tensors play no part in it.
    """
    _, num_kv_heads, block_size, head_dim = keys.shape
    num_rows, num_requests = len(qkv), len(context_lens)
    num_heads = qkv.shape[1] // head_dim - 2 * num_kv_heads
    out = torch.zeros(num_rows, num_heads * head_dim, dtype=qkv.dtype, device=qkv.device)
    if num_rows == 0 or num_requests == 0:
        return out
    group = num_heads // num_kv_heads
    if block_q is None:
        block_q = choose_block_q(num_rows, num_requests, group)
    num_blocks = num_rows // block_q + num_requests
    if num_splits is None:
        num_splits = choose_num_splits(num_blocks * num_kv_heads)
    block_d = max(16, triton.next_power_of_2(head_dim))
    shape = (num_rows, num_heads, num_splits)
    has_parts = num_splits > 1
    peaks = qkv.new_empty(shape if has_parts else 0, dtype=torch.float32)
    parts = qkv.new_empty((*shape, head_dim) if has_parts else 0, dtype=torch.float32)
    totals = torch.empty_like(peaks)
    block_m = max(16, triton.next_power_of_2(block_q * group))
    _attend_kernel[(num_blocks, num_kv_heads, num_splits)](
        qkv,
        keys,
        values,
        cu_seqlens_q,
        context_lens,
        block_tables,
        context_lens if tree is None else tree,
        out,
        parts,
        peaks,
        totals,
        scale * LOG2_E,
        num_requests,
        block_tables.shape[1],
        NUM_HEADS=num_heads,
        NUM_KV_HEADS=num_kv_heads,
        HEAD_DIM=head_dim,
        BLOCK_SIZE=block_size,
        BLOCK_D=block_d,
        BLOCK_Q=block_q,
        BLOCK_M=block_m,
        TILE=32 if qkv.dtype == torch.float32 else 64,
        NUM_SPLITS=num_splits,
        HAS_TREE=tree is not None,
        num_warps=4 if block_m <= 64 else 8,
    )
    if has_parts:
        _add_parts_kernel[(num_rows, num_heads)](
            parts,
            peaks,
            totals,
            cu_seqlens_q,
            out,
            num_requests,
            NUM_HEADS=num_heads,
            HEAD_DIM=head_dim,
            BLOCK_D=block_d,
            NUM_SPLITS=num_splits,
            BLOCK_SPLITS=triton.next_power_of_2(num_splits),
            num_warps=1,
        )
    return out


def choose_block_q(num_rows: int, num_requests: int, group: int) -> int:
    """Query rows of one program: few for decode and verification, many for prompts."""
    block_m = 16 if num_rows < 32 * num_requests else 128
    return max(1, block_m // int(triton.next_power_of_2(group)))


def choose_num_splits(num_programs: int) -> int:
    """Parts of each context, so that some 512 programs run: four for each multiprocessor."""
    return max(1, min(16, 512 // num_programs))
