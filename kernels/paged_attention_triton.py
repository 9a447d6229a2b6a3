"""Paged attention as a Triton kernel: online softmax over tiles of a context, split over programs.

One program takes BLOCK_Q query rows of one request with all heads of one kv head, as the rows of
one matrix, and one split of the context: every num_splits-th part of PART_TILES
tiles. The last program of a block to finish adds up what all have found, in the order of splits:

    split s:  peak_s = max score,  total_s = sum exp(score - peak_s),  acc_s = sum exp(…) value
    out     = sum_s exp(peak_s - peak) acc_s / sum_s exp(peak_s - peak) total_s

(FlashAttention-2, arXiv 2307.08691; FlashDecoding for the splits.) A key's split hangs on its
position alone, so a row's result depends on block_q, the number of splits and the launch, and on
nothing else: not on other rows, nor on drafts behind it. Programs are laid out by upper bounds that
the shapes give, so that a launch can be captured in a CUDA graph.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from structspec.kernels.paged_attention_plan import (
    Launch,
    choose_block_q,
    choose_launch,
    choose_num_splits,
    count_blocks,
)
from structspec.kernels.paged_attention_tile import add_splits, attend_tile, load_block_numbers

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
def _find_tile(
    n: tl.tensor, split: tl.tensor, num_splits: tl.tensor, PART_TILES: tl.constexpr
) -> tl.tensor:
    """The n-th tile of this split."""
    return ((n // PART_TILES) * num_splits + split) * PART_TILES + n % PART_TILES


@triton.jit  # type: ignore[untyped-decorator]
def _count_own_tiles(
    num_tiles: tl.tensor, split: tl.tensor, num_splits: tl.tensor, PART_TILES: tl.constexpr
) -> tl.tensor:
    """How many of a context's first `num_tiles` tiles are in this split."""
    per_round = num_splits * PART_TILES
    rest = num_tiles % per_round - split * PART_TILES
    return num_tiles // per_round * PART_TILES + tl.minimum(tl.maximum(rest, 0), PART_TILES)


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["num_rows", "num_requests", "blocks_per_request", "table_width"]
)
def _attend_kernel(
    qkv_ptr: tl.tensor,
    keys_ptr: tl.tensor,
    values_ptr: tl.tensor,
    cu_seqlens_q_ptr: tl.tensor,
    context_lens_ptr: tl.tensor,
    block_tables_ptr: tl.tensor,
    tree_ptr: tl.tensor,
    block_requests_ptr: tl.tensor,
    out_ptr: tl.tensor,
    accs_ptr: tl.tensor,
    peaks_ptr: tl.tensor,
    totals_ptr: tl.tensor,
    arrivals_ptr: tl.tensor,
    scale: tl.tensor,
    num_rows: tl.tensor,
    num_requests: tl.tensor,
    blocks_per_request: tl.tensor,
    table_width: tl.tensor,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_M: tl.constexpr,
    TILE: tl.constexpr,
    PART_TILES: tl.constexpr,
    HAS_SPLITS: tl.constexpr,
    HAS_TREE: tl.constexpr,
    IS_REGULAR: tl.constexpr,
    HAS_BLOCK_REQUESTS: tl.constexpr,
) -> None:
    GROUP: tl.constexpr = NUM_HEADS // NUM_KV_HEADS
    block = tl.num_programs(0) - 1 - tl.program_id(0)  # a prompt's last blocks take longest
    kv_head, split, num_splits = tl.program_id(1), tl.program_id(2), tl.num_programs(2)
    if IS_REGULAR:
        request = block // blocks_per_request
    elif HAS_BLOCK_REQUESTS:
        request = tl.load(block_requests_ptr + block)
    else:
        request = _find_request(cu_seqlens_q_ptr, block, num_requests, BLOCK_Q)
    start = tl.load(cu_seqlens_q_ptr + request)
    query_len = (tl.load(cu_seqlens_q_ptr + request + 1) - start).to(tl.int32)
    context = tl.load(context_lens_ptr + request).to(tl.int32)
    if IS_REGULAR:
        first_row = block % blocks_per_request * BLOCK_Q
    else:
        first_row = (block - request - (start // BLOCK_Q).to(tl.int32)) * BLOCK_Q
    before = context - query_len  # keys from earlier steps
    end = context if HAS_TREE else tl.minimum(context, before + first_row + BLOCK_Q)
    num_tiles = tl.cdiv(end, TILE)
    num_used_splits = tl.minimum(tl.cdiv(num_tiles, PART_TILES), num_splits)  # that hold any keys
    if (first_row >= query_len) | (split >= num_used_splits):
        return

    m = tl.arange(0, BLOCK_M)
    d = tl.arange(0, BLOCK_D)
    row, head = first_row + m // GROUP, kv_head * GROUP + m % GROUP
    is_row = (m < BLOCK_Q * GROUP) & (row < query_len)
    width: tl.constexpr = (NUM_HEADS + 2 * NUM_KV_HEADS) * HEAD_DIM
    query = tl.load(
        qkv_ptr + (start + row)[:, None] * width + head[:, None] * HEAD_DIM + d[None, :],
        mask=is_row[:, None] & (d < HEAD_DIM)[None, :],
        other=0.0,
    )
    tree = tl.zeros((BLOCK_M,), tl.int64)
    if HAS_TREE:
        tree = tl.load(tree_ptr + start + row, mask=is_row, other=0)
    table_ptr = block_tables_ptr + request.to(tl.int64) * table_width

    peak = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    num_own = _count_own_tiles(num_tiles, split, num_splits, PART_TILES)
    num_whole = num_own * 0
    # A tile ahead, so that the loads of keys need not wait for them.
    first_tile = _find_tile(num_whole, split, num_splits, PART_TILES)
    block_numbers = load_block_numbers(table_ptr, first_tile, end, BLOCK_SIZE, TILE)
    if BLOCK_M >= 64:  # a loop more pays where masks are long
        seen_by_all = before if HAS_TREE else before + first_row + 1
        num_whole = _count_own_tiles(seen_by_all // TILE, split, num_splits, PART_TILES)
        for n in range(0, num_whole):
            tile = _find_tile(n, split, num_splits, PART_TILES)
            next_tile = _find_tile(n + 1, split, num_splits, PART_TILES)
            next_numbers = load_block_numbers(table_ptr, next_tile, end, BLOCK_SIZE, TILE)
            peak, total, acc = attend_tile(
                query,
                keys_ptr,
                values_ptr,
                block_numbers,
                kv_head,
                tile,
                end,
                before,
                row,
                tree,
                scale,
                peak,
                total,
                acc,
                NUM_KV_HEADS,
                HEAD_DIM,
                BLOCK_SIZE,
                BLOCK_D,
                TILE,
                HAS_TREE,
                IS_WHOLE=True,
            )
            block_numbers = next_numbers
    for n in range(num_whole, num_own):
        tile = _find_tile(n, split, num_splits, PART_TILES)
        next_tile = _find_tile(n + 1, split, num_splits, PART_TILES)
        next_numbers = load_block_numbers(table_ptr, next_tile, end, BLOCK_SIZE, TILE)
        peak, total, acc = attend_tile(
            query,
            keys_ptr,
            values_ptr,
            block_numbers,
            kv_head,
            tile,
            end,
            before,
            row,
            tree,
            scale,
            peak,
            total,
            acc,
            NUM_KV_HEADS,
            HEAD_DIM,
            BLOCK_SIZE,
            BLOCK_D,
            TILE,
            HAS_TREE,
            IS_WHOLE=False,
        )
        block_numbers = next_numbers

    place = (start + row) * NUM_HEADS + head
    numbers = place[:, None] * HEAD_DIM + d[None, :]
    is_number = is_row[:, None] & (d < HEAD_DIM)[None, :]
    is_last = num_used_splits == 1
    if HAS_SPLITS:  # noqa: SIM102 - decided when the kernel is compiled
        if num_used_splits > 1:
            num_places = num_rows.to(tl.int64) * NUM_HEADS
            shift = split * num_places
            tl.store(accs_ptr + shift * HEAD_DIM + numbers, acc, mask=is_number)
            tl.store(peaks_ptr + shift + place, peak, mask=is_row)
            tl.store(totals_ptr + shift + place, total, mask=is_row)
            tl.debug_barrier()  # all of the program's stores before its one atomic releases them
            arrived_ptr = arrivals_ptr + block * NUM_KV_HEADS + kv_head
            is_last = tl.atomic_add(arrived_ptr, 1, sem="acq_rel") == num_used_splits - 1
            tl.debug_barrier()
            if is_last:
                tl.store(arrived_ptr, 0)  # for the next launch
                total, acc = add_splits(
                    accs_ptr,
                    peaks_ptr,
                    totals_ptr,
                    place,
                    is_row,
                    num_places,
                    num_used_splits,
                    HEAD_DIM,
                    BLOCK_D,
                    BLOCK_M,
                )
    if is_last:
        out = (acc / tl.where(is_row, total, 1.0)[:, None]).to(out_ptr.dtype.element_ty)
        tl.store(out_ptr + numbers, out, mask=is_number)


class Arrivals:
    """Counts which splits of a block are there, so that the last one adds them up.

    All are 0 between launches. Launches that share them must follow one another: engines, whose
    streams run beside each other, need their own. They outlive captured graphs.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._counters: dict[int, Tensor] = {}

    def counters(self, num_blocks: int) -> Tensor:
        """One for each of so many blocks, or more."""
        # A size for all, so that a larger step need not be warmed up by itself.
        size = max(65_536, triton.next_power_of_2(num_blocks))
        if size not in self._counters:
            is_cuda = self._device.type == "cuda"
            assert not (is_cuda and torch.cuda.is_current_stream_capturing()), "warm up first"
            self._counters[size] = torch.zeros(size, dtype=torch.int32, device=self._device)
        return self._counters[size]


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
    max_query_len: int | None = None,
    block_requests: Tensor | None = None,
    block_q: int | None = None,
    num_splits: int | None = None,
    launch: Launch | None = None,
    arrivals: Arrivals | None = None,
) -> Tensor:
    """The kernel; on a CPU it needs Triton's interpreter. Padding rows of the result are anything.

    What is not given is chosen from the shapes alone; the values of the tensors play no part in it.
    """
    _, num_kv_heads, block_size, head_dim = keys.shape
    num_rows, num_requests = len(qkv), len(context_lens)
    num_heads = qkv.shape[1] // head_dim - 2 * num_kv_heads
    out = qkv.new_empty(num_rows, num_heads * head_dim)
    if num_rows == 0 or num_requests == 0:
        return out
    group = num_heads // num_kv_heads
    if block_q is None:
        assert block_requests is None, "they were found for some block_q"
        block_q = choose_block_q(num_rows, num_requests, group, max_query_len, head_dim, qkv.dtype)
    block_m = max(16, triton.next_power_of_2(block_q * group))
    num_blocks, per_request = count_blocks(num_rows, num_requests, block_q, max_query_len)
    if block_requests is not None:
        assert block_requests.dtype == torch.int32
        assert per_request > 0 or len(block_requests) == num_blocks
    launch = launch or choose_launch(block_m, qkv.dtype)
    if num_splits is None:
        max_context = block_tables.shape[1] * block_size
        num_splits = choose_num_splits(num_blocks * num_kv_heads, max_context, launch)
    has_splits = num_splits > 1
    peaks = qkv.new_empty(
        (num_splits, num_rows, num_heads) if has_splits else 0, dtype=torch.float32
    )
    totals = torch.empty_like(peaks)
    accs = torch.empty((*peaks.shape, head_dim), dtype=torch.float32, device=qkv.device)
    counters = context_lens
    if has_splits:
        counters = (arrivals or Arrivals(qkv.device)).counters(num_blocks * num_kv_heads)
    _attend_kernel[(num_blocks, num_kv_heads, num_splits)](
        qkv,
        keys,
        values,
        cu_seqlens_q,
        context_lens,
        block_tables,
        context_lens if tree is None else tree,
        context_lens if block_requests is None else block_requests,
        out,
        accs,
        peaks,
        totals,
        counters,
        scale * LOG2_E,
        num_rows,
        num_requests,
        per_request,
        block_tables.shape[1],
        NUM_HEADS=num_heads,
        NUM_KV_HEADS=num_kv_heads,
        HEAD_DIM=head_dim,
        BLOCK_SIZE=block_size,
        BLOCK_D=max(16, triton.next_power_of_2(head_dim)),
        BLOCK_Q=block_q,
        BLOCK_M=block_m,
        TILE=launch.tile,
        PART_TILES=launch.part_tiles,
        HAS_SPLITS=has_splits,
        HAS_TREE=tree is not None,
        IS_REGULAR=per_request > 0,
        HAS_BLOCK_REQUESTS=block_requests is not None,
        num_warps=launch.num_warps,
        num_stages=launch.num_stages,
    )
    return out
