"""The arithmetic of paged attention: a running softmax over tiles of keys, and its splits' sum.

For each pair of row and head, over the keys so far (scores in powers of 2):

    peak = max score,  total = sum 2^(score - peak),  acc = sum 2^(score - peak) value
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def load_block_numbers(
    table_ptr: tl.tensor,
    tile: tl.tensor,
    end: tl.tensor,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
) -> tl.tensor:
    """Where the keys of a tile lie: the block of each, [TILE] int64."""
    t = tile * TILE + tl.arange(0, TILE)
    return tl.load(table_ptr + t // BLOCK_SIZE, mask=t < end, other=0).to(tl.int64)


@triton.jit  # type: ignore[untyped-decorator]
def _load_tile(
    cache_ptr: tl.tensor,
    place: tl.tensor,
    is_key: tl.tensor,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    IS_WHOLE: tl.constexpr,
) -> tl.tensor:
    """Keys or values [TILE, BLOCK_D]; masks cost time, so there are none where all is wanted."""
    d = tl.arange(0, BLOCK_D)
    numbers = cache_ptr + place[:, None] + d[None, :]
    if HEAD_DIM != BLOCK_D:
        return tl.load(numbers, mask=is_key[:, None] & (d < HEAD_DIM)[None, :], other=0.0)
    elif IS_WHOLE:
        return tl.load(numbers)
    else:
        return tl.load(numbers, mask=is_key[:, None], other=0.0)


@triton.jit  # type: ignore[untyped-decorator]
def attend_tile(
    query: tl.tensor,
    keys_ptr: tl.tensor,
    values_ptr: tl.tensor,
    numbers: tl.tensor,
    kv_head: tl.tensor,
    tile: tl.tensor,
    end: tl.tensor,
    before: tl.tensor,
    row: tl.tensor,
    tree: tl.tensor,
    scale: tl.tensor,
    peak: tl.tensor,
    total: tl.tensor,
    acc: tl.tensor,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    BLOCK_D: tl.constexpr,
    TILE: tl.constexpr,
    HAS_TREE: tl.constexpr,
    IS_WHOLE: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """Peak, total and acc with one tile of keys more; `IS_WHOLE`: every row sees all of them."""
    t = tile * TILE + tl.arange(0, TILE)
    is_key = t < end
    place = ((numbers * NUM_KV_HEADS + kv_head) * BLOCK_SIZE + t % BLOCK_SIZE) * HEAD_DIM
    key = _load_tile(keys_ptr, place, is_key, HEAD_DIM, BLOCK_D, IS_WHOLE)
    scores = tl.dot(query, tl.trans(key), input_precision="ieee")
    if not IS_WHOLE:
        if HAS_TREE:
            bit = tl.maximum(t - before, 0).to(tl.int64)
            is_seen = (t < before)[None, :] | (((tree[:, None] >> bit[None, :]) & 1) != 0)
        else:
            is_seen = t[None, :] <= (before + row)[:, None]
        scores = tl.where(is_seen & is_key[None, :], scores, float("-inf"))
    # Scaled behind the mask, so that a tile's numbers are rounded alike with and without one.
    new_peak = tl.maximum(peak, tl.max(scores, 1) * scale)
    safe_peak = tl.where(new_peak == float("-inf"), 0.0, new_peak)
    shrink = tl.exp2(peak - safe_peak)
    weights = tl.exp2(scores * scale - safe_peak[:, None])
    total = total * shrink + tl.sum(weights, 1)
    value = _load_tile(values_ptr, place, is_key, HEAD_DIM, BLOCK_D, IS_WHOLE)
    acc = acc * shrink[:, None]
    acc += tl.dot(weights.to(value.dtype), value, input_precision="ieee")
    return new_peak, total, acc


@triton.jit  # type: ignore[untyped-decorator]
def add_splits(
    accs_ptr: tl.tensor,
    peaks_ptr: tl.tensor,
    totals_ptr: tl.tensor,
    place: tl.tensor,
    is_row: tl.tensor,
    num_places: tl.tensor,
    num_used_splits: tl.tensor,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """Total and acc of all splits of a block, always in the same order."""
    d = tl.arange(0, BLOCK_D)
    is_number = is_row[:, None] & (d < HEAD_DIM)[None, :]
    peak = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    # Several at once, so that their loads do not wait for each other; few where they are large.
    UNROLL: tl.constexpr = 4 if BLOCK_M * BLOCK_D <= 4096 else 1
    for _ in tl.range(0, num_used_splits, loop_unroll_factor=UNROLL):
        accs = accs_ptr + place[:, None] * HEAD_DIM + d[None, :]
        split_acc = tl.load(accs, mask=is_number, other=0.0, cache_modifier=".cg")
        split_peak = tl.load(
            peaks_ptr + place, mask=is_row, other=float("-inf"), cache_modifier=".cg"
        )
        split_total = tl.load(totals_ptr + place, mask=is_row, other=0.0, cache_modifier=".cg")
        new_peak = tl.maximum(peak, split_peak)
        safe_peak = tl.where(new_peak == float("-inf"), 0.0, new_peak)
        shrink, split_shrink = tl.exp2(peak - safe_peak), tl.exp2(split_peak - safe_peak)
        total = total * shrink + split_total * split_shrink
        acc = acc * shrink[:, None] + split_acc * split_shrink[:, None]
        peak = new_peak
        place += num_places
    return total, acc
