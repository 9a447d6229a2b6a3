"""The draw of rows that min_p, top-k or top-p limit, from what sample_rows_limits.py knows.

`_collect_kernel` reads the logits once more. What lies before the bins in question is kept: the
best of it, with its noise, is found. What lies in these bins goes into a list, and `_choose_kernel`
finds the limits among the list's keys by bisection, then the best of what they leave. So logits
are read three times, and twice where only min_p is on.

A list has room for 4,096 tokens. Where more are in question (nearly flat rows), `_choose_kernel`
reads the row itself at every step of a bisection: at most 17 times for a limit within one bin, 31
times at worst, and often fewer, as a step goes on from a key that exists. One program reads it.

Masses are sums of integers, so no order of additions changes a token. They are those of float32
weights: the mass that top-p keeps is what it should be within 1e-5 of all that is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from structspec.kernels.sample_rows_filters import Filters, is_filtered
from structspec.kernels.sample_rows_limits import (
    K_BIN,
    K_BIN_MASS,
    K_LEFT,
    K_MASS,
    LIMIT,
    NO_KEY,
    NUM_BINS,
    P_FIRST,
    P_LAST,
    P_MASS,
    PLAN_SIZE,
    bins_of,
    bound_row_kernel,
    count_kernel,
    find_bins_kernel,
    first_key,
    keys_of,
    wanted_mass,
)
from structspec.kernels.sample_rows_scores import NO_SCORE, allowed_scores, better_of, with_noise
from structspec.kernels.sample_rows_search import find_limit

PART_SIZE = 2048  # tokens: 63 programs for a row of 128,256; results do not depend on it
GROUPS_PER_PART = 8
_LIST_SIZE = 4096
_LIST_BLOCK = 1024
_MAX_NUM_PROGRAMS = 4096  # rows x programs: most of them have nothing to do


@triton.jit  # type: ignore[untyped-decorator]
def _collect_kernel(
    logits_ptr: tl.tensor,
    logits_stride: tl.tensor,
    bitmask_ptr: tl.tensor,
    bitmask_stride: tl.tensor,
    mask_rows_ptr: tl.tensor,
    stop_token_ids_ptr: tl.tensor,
    num_stops: tl.tensor,
    bans_stops_ptr: tl.tensor,
    vocab_size: tl.tensor,
    temperature_ptr: tl.tensor,
    seeds_ptr: tl.tensor,
    draws_ptr: tl.tensor,
    top_k_ptr: tl.tensor,
    top_p_ptr: tl.tensor,
    min_p_ptr: tl.tensor,
    maxima_ptr: tl.tensor,
    plan_ptr: tl.tensor,
    best_scores_ptr: tl.tensor,
    best_ids_ptr: tl.tensor,
    list_sizes_ptr: tl.tensor,
    list_keys_ptr: tl.tensor,
    list_scores_ptr: tl.tensor,
    list_ids_ptr: tl.tensor,
    LIST_SIZE: tl.constexpr,
    PART_SIZE: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    if not is_filtered(row, temperature_ptr, top_k_ptr, top_p_ptr, min_p_ptr):
        return
    temperature, maximum = tl.load(temperature_ptr + row), tl.load(maxima_ptr + row)
    plan_ptr += row * PLAN_SIZE
    limit, k_bin = tl.load(plan_ptr + LIMIT), tl.load(plan_ptr + K_BIN)
    p_first, p_last = tl.load(plan_ptr + P_FIRST), tl.load(plan_ptr + P_LAST)
    best, best_id = tl.full((), NO_SCORE, tl.float32), tl.full((), 0x7FFFFFFF, tl.int32)
    for part in range(tl.program_id(1), tl.cdiv(vocab_size, PART_SIZE), tl.num_programs(1)):
        word_ids = part * (PART_SIZE // 32) + tl.arange(0, PART_SIZE // 32)
        token_ids = word_ids[:, None] * 32 + tl.arange(0, 32)[None, :]
        scores = allowed_scores(
            row, word_ids, logits_ptr, logits_stride, bitmask_ptr, bitmask_stride, mask_rows_ptr,
            stop_token_ids_ptr, num_stops, bans_stops_ptr, vocab_size,
        )  # fmt: skip
        keys = keys_of(scores, maximum, temperature)
        bins = bins_of(keys)
        is_left = keys <= limit
        is_kept = is_left & (bins < tl.minimum(p_first, k_bin))
        is_open = is_left & (((bins >= p_first) & (bins <= p_last)) | (bins == k_bin))
        if tl.max((is_kept | is_open).to(tl.int32)) > 0:  # most parts have none, and need no noise
            scores = with_noise(scores, row, word_ids, temperature, seeds_ptr, draws_ptr)
            kept = tl.where(is_kept, scores, NO_SCORE)
            best, best_id = better_of(kept, token_ids, best, best_id)
            places = tl.atomic_add(
                list_sizes_ptr + row + tl.zeros_like(token_ids), 1, mask=is_open, sem="relaxed"
            )
            is_listed = is_open & (places < LIST_SIZE)
            places += row * LIST_SIZE
            tl.store(list_keys_ptr + places, keys, mask=is_listed)
            tl.store(list_scores_ptr + places, scores, mask=is_listed)
            tl.store(list_ids_ptr + places, token_ids, mask=is_listed)
    place = row * tl.num_programs(1) + tl.program_id(1)
    tl.store(best_scores_ptr + place, best)
    tl.store(best_ids_ptr + place, best_id)


@triton.jit(do_not_specialize=["num_programs"])  # type: ignore[untyped-decorator]
def _choose_kernel(
    logits_ptr: tl.tensor,
    logits_stride: tl.tensor,
    bitmask_ptr: tl.tensor,
    bitmask_stride: tl.tensor,
    mask_rows_ptr: tl.tensor,
    stop_token_ids_ptr: tl.tensor,
    num_stops: tl.tensor,
    bans_stops_ptr: tl.tensor,
    vocab_size: tl.tensor,
    temperature_ptr: tl.tensor,
    seeds_ptr: tl.tensor,
    draws_ptr: tl.tensor,
    top_k_ptr: tl.tensor,
    top_p_ptr: tl.tensor,
    min_p_ptr: tl.tensor,
    maxima_ptr: tl.tensor,
    plan_ptr: tl.tensor,
    best_scores_ptr: tl.tensor,
    best_ids_ptr: tl.tensor,
    list_sizes_ptr: tl.tensor,
    list_keys_ptr: tl.tensor,
    list_scores_ptr: tl.tensor,
    list_ids_ptr: tl.tensor,
    token_ids_ptr: tl.tensor,
    num_programs: tl.tensor,
    BEST_BLOCK: tl.constexpr,
    LIST_SIZE: tl.constexpr,
    LIST_BLOCK: tl.constexpr,
    PART_SIZE: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    if not is_filtered(row, temperature_ptr, top_k_ptr, top_p_ptr, min_p_ptr):
        return
    temperature, maximum = tl.load(temperature_ptr + row), tl.load(maxima_ptr + row)
    plan_ptr += row * PLAN_SIZE
    list_keys_ptr += row * LIST_SIZE
    num_listed = tl.load(list_sizes_ptr + row)
    limit = tl.load(plan_ptr + LIMIT).to(tl.int32)
    total = tl.load(plan_ptr + K_MASS)
    k_left = tl.load(plan_ptr + K_LEFT).to(tl.int32)
    if k_left > 0:
        k_bin = tl.load(plan_ptr + K_BIN).to(tl.int32)
        first, last = first_key(k_bin), tl.minimum(first_key(k_bin + 1) - 1, limit)
        limit, mass = find_limit(
            first, last, k_left, tl.load(plan_ptr + K_BIN_MASS), False,
            list_keys_ptr, num_listed, maximum, temperature,
            row, logits_ptr, logits_stride, bitmask_ptr, bitmask_stride, mask_rows_ptr,
            stop_token_ids_ptr, num_stops, bans_stops_ptr, vocab_size,
            LIST_SIZE, LIST_BLOCK, PART_SIZE,
        )  # fmt: skip
        total += mass
    p_first = tl.load(plan_ptr + P_FIRST).to(tl.int32)
    if p_first < NUM_BINS:
        p_last = tl.load(plan_ptr + P_LAST).to(tl.int32)
        wanted = wanted_mass(total, tl.load(top_p_ptr + row)) - tl.load(plan_ptr + P_MASS)
        first, last = first_key(p_first), tl.minimum(first_key(p_last + 1) - 1, limit)
        limit, _ = find_limit(
            first, last, wanted, wanted, True,
            list_keys_ptr, num_listed, maximum, temperature,
            row, logits_ptr, logits_stride, bitmask_ptr, bitmask_stride, mask_rows_ptr,
            stop_token_ids_ptr, num_stops, bans_stops_ptr, vocab_size,
            LIST_SIZE, LIST_BLOCK, PART_SIZE,
        )  # fmt: skip
    programs = tl.arange(0, BEST_BLOCK)
    places, is_program = row * num_programs + programs, programs < num_programs
    kept = tl.load(best_scores_ptr + places, mask=is_program, other=NO_SCORE)
    kept_ids = tl.load(best_ids_ptr + places, mask=is_program, other=0x7FFFFFFF)
    best, best_id = tl.full((), NO_SCORE, tl.float32), tl.full((), 0x7FFFFFFF, tl.int32)
    best, best_id = better_of(kept, kept_ids, best, best_id)
    if num_listed <= LIST_SIZE:
        for start in range(0, num_listed, LIST_BLOCK):
            entries = start + tl.arange(0, LIST_BLOCK)
            keys = tl.load(list_keys_ptr + entries, mask=entries < num_listed, other=NO_KEY)
            is_left = keys <= limit
            entries += row * LIST_SIZE
            scores = tl.load(list_scores_ptr + entries, mask=is_left, other=NO_SCORE)
            token_ids = tl.load(list_ids_ptr + entries, mask=is_left, other=0x7FFFFFFF)
            best, best_id = better_of(scores, token_ids, best, best_id)
    else:
        for part in range(tl.cdiv(vocab_size, PART_SIZE)):
            word_ids = part * (PART_SIZE // 32) + tl.arange(0, PART_SIZE // 32)
            token_ids = word_ids[:, None] * 32 + tl.arange(0, 32)[None, :]
            scores = allowed_scores(
                row, word_ids, logits_ptr, logits_stride, bitmask_ptr, bitmask_stride,
                mask_rows_ptr, stop_token_ids_ptr, num_stops, bans_stops_ptr, vocab_size,
            )  # fmt: skip
            is_left = keys_of(scores, maximum, temperature) <= limit
            scores = with_noise(scores, row, word_ids, temperature, seeds_ptr, draws_ptr)
            scores = tl.where(is_left, scores, NO_SCORE)
            best, best_id = better_of(scores, token_ids, best, best_id)
    best_id = tl.where(best == NO_SCORE, 0, best_id)  # all is forbidden
    tl.store(token_ids_ptr + row, best_id.to(tl.int64))


def draw_filtered(
    rows: Sequence[Any],  # what allowed_scores takes behind its blocks
    randomness: Sequence[Tensor],  # temperature, seeds, draws
    filters: Filters,
    group_maxima: Tensor,  # [num_rows, num_groups] float32, of filtered rows
    token_ids: Tensor,  # [num_rows] int64: those of filtered rows are written
) -> None:
    """Draw the rows that are filtered; the others cost no more than a look at their parameters."""
    temperature = randomness[0]
    num_rows, num_groups = group_maxima.shape
    vocab_size, num_parts = rows[-1], num_groups // GROUPS_PER_PART
    num_programs = min(num_parts, max(1, _MAX_NUM_PROGRAMS // num_rows))

    def empty(*shape: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(num_rows, *shape, dtype=dtype, device=temperature.device)

    maxima, plan = empty(dtype=torch.float32), empty(PLAN_SIZE.value, dtype=torch.int64)
    counts = empty(NUM_BINS.value, dtype=torch.int32)
    masses = empty(NUM_BINS.value, dtype=torch.int64)
    best_scores = empty(num_programs, dtype=torch.float32)
    best_ids = empty(num_programs, dtype=torch.int32)
    listed = (
        empty(dtype=torch.int32),  # how many, or would be if there were room
        empty(_LIST_SIZE, dtype=torch.int32),  # keys
        empty(_LIST_SIZE, dtype=torch.float32),  # scores with noise
        empty(_LIST_SIZE, dtype=torch.int32),  # token ids
    )
    bound_row_kernel[(num_rows,)](
        group_maxima,
        temperature,
        *filters.columns,
        maxima,
        plan,
        counts,
        masses,
        listed[0],
        vocab_size,
        num_groups,
        BLOCK_SIZE=triton.next_power_of_2(num_groups),
    )
    count_kernel[(num_rows, num_programs)](
        *rows,
        temperature,
        filters.top_k,
        filters.top_p,
        maxima,
        plan,
        counts,
        masses,
        PART_SIZE=PART_SIZE,
    )
    find_bins_kernel[(num_rows,)](temperature, *filters.columns, plan, counts, masses)
    found = (*rows, *randomness, *filters.columns, maxima, plan, best_scores, best_ids, *listed)
    _collect_kernel[(num_rows, num_programs)](*found, LIST_SIZE=_LIST_SIZE, PART_SIZE=PART_SIZE)
    _choose_kernel[(num_rows,)](
        *found,
        token_ids,
        num_programs,
        BEST_BLOCK=triton.next_power_of_2(num_parts),
        LIST_SIZE=_LIST_SIZE,
        LIST_BLOCK=_LIST_BLOCK,
        PART_SIZE=PART_SIZE,
        num_warps=8,
    )
