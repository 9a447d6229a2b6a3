"""Bisection for a limit among a row's keys (sample_rows_limits.py), listed or read anew.

    low, high = first, last
    while low < high:
        middle = (low + high) // 2
        high = the largest key <= middle  if the keys from first to middle are enough
        low = the smallest key > middle   else

Steps end at keys that exist, so equal keys cost one step, and n different ones seldom more than
a few beyond log2 n.
"""

from __future__ import annotations

import triton
import triton.language as tl

from structspec.kernels.sample_rows_limits import NO_KEY, keys_of, masses_of
from structspec.kernels.sample_rows_scores import allowed_scores


@triton.jit  # type: ignore[untyped-decorator]
def _add_keys(
    keys: tl.tensor,
    first: tl.tensor,
    middle: tl.tensor,
    last: tl.tensor,
    count: tl.tensor,
    mass: tl.tensor,
    lower: tl.tensor,
    upper: tl.tensor,
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """A block's share in what `_count_keys` gives."""
    is_lower = (keys >= first) & (keys <= middle)
    count += tl.sum(is_lower.to(tl.int32))
    mass += tl.sum(tl.where(is_lower, masses_of(keys), 0))
    lower = tl.maximum(lower, tl.max(tl.where(is_lower, keys, first)))
    upper = tl.minimum(upper, tl.min(tl.where((keys > middle) & (keys <= last), keys, last)))
    return count, mass, lower, upper


@triton.jit  # type: ignore[untyped-decorator]
def _count_keys(
    first: tl.tensor,
    middle: tl.tensor,
    last: tl.tensor,
    list_keys_ptr: tl.tensor,
    num_listed: tl.tensor,
    maximum: tl.tensor,
    temperature: tl.tensor,
    row: tl.tensor,
    logits_ptr: tl.tensor,
    logits_stride: tl.tensor,
    bitmask_ptr: tl.tensor,
    bitmask_stride: tl.tensor,
    mask_rows_ptr: tl.tensor,
    stop_token_ids_ptr: tl.tensor,
    num_stops: tl.tensor,
    bans_stops_ptr: tl.tensor,
    vocab_size: tl.tensor,
    LIST_SIZE: tl.constexpr,
    LIST_BLOCK: tl.constexpr,
    PART_SIZE: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """Tokens with keys from `first` to `middle`: how many, their mass, and the largest key.

    And the smallest key behind them, at most `last`.
    """
    count, mass = tl.full((), 0, tl.int32), tl.full((), 0, tl.int64)
    lower, upper = first, last
    if num_listed <= LIST_SIZE:
        for start in range(0, num_listed, LIST_BLOCK):
            places = start + tl.arange(0, LIST_BLOCK)
            keys = tl.load(list_keys_ptr + places, mask=places < num_listed, other=NO_KEY)
            count, mass, lower, upper = _add_keys(
                keys, first, middle, last, count, mass, lower, upper
            )
    else:
        for part in range(tl.cdiv(vocab_size, PART_SIZE)):
            word_ids = part * (PART_SIZE // 32) + tl.arange(0, PART_SIZE // 32)
            scores = allowed_scores(
                row, word_ids, logits_ptr, logits_stride, bitmask_ptr, bitmask_stride,
                mask_rows_ptr, stop_token_ids_ptr, num_stops, bans_stops_ptr, vocab_size,
            )  # fmt: skip
            keys = keys_of(scores, maximum, temperature)
            count, mass, lower, upper = _add_keys(
                keys, first, middle, last, count, mass, lower, upper
            )
    return count, mass, lower, upper


@triton.jit  # type: ignore[untyped-decorator]
def find_limit(
    first: tl.tensor,
    last: tl.tensor,
    wanted: tl.tensor,
    high_mass: tl.tensor,
    BY_MASS: tl.constexpr,
    list_keys_ptr: tl.tensor,
    num_listed: tl.tensor,
    maximum: tl.tensor,
    temperature: tl.tensor,
    row: tl.tensor,
    logits_ptr: tl.tensor,
    logits_stride: tl.tensor,
    bitmask_ptr: tl.tensor,
    bitmask_stride: tl.tensor,
    mask_rows_ptr: tl.tensor,
    stop_token_ids_ptr: tl.tensor,
    num_stops: tl.tensor,
    bans_stops_ptr: tl.tensor,
    vocab_size: tl.tensor,
    LIST_SIZE: tl.constexpr,
    LIST_BLOCK: tl.constexpr,
    PART_SIZE: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """The first key up to which the tokens from `first` on are as many or as heavy as wanted.

    And their mass; `high_mass` is that of all from `first` to `last`.
    """
    low, high = first, last
    while low < high:
        middle = low + (high - low) // 2
        count, mass, lower, upper = _count_keys(
            first, middle, high, list_keys_ptr, num_listed, maximum, temperature,
            row, logits_ptr, logits_stride, bitmask_ptr, bitmask_stride, mask_rows_ptr,
            stop_token_ids_ptr, num_stops, bans_stops_ptr, vocab_size,
            LIST_SIZE, LIST_BLOCK, PART_SIZE,
        )  # fmt: skip
        is_reached = (mass if BY_MASS else count) >= wanted
        high = tl.where(is_reached, lower, high)
        high_mass = tl.where(is_reached, mass, high_mass)
        low = tl.where(is_reached, low, upper)
    return high, high_mass
