"""A row's best tokens in falling order: the one that is drawn, and those that come next.

    groups = the 1 + n groups of tokens with the largest maxima    of equals the first
    best   = the 1 + n best of their tokens                        of equals the first

No other group has one of them: each of these has a token that beats all of another group's. So the
kernel that reads the logits finds maxima alone, and here only a few groups are read once more.
"""

from __future__ import annotations

import triton
import triton.language as tl

from structspec.kernels.sample_rows_filters import is_filtered
from structspec.kernels.sample_rows_scores import NO_SCORE, allowed_scores, with_noise


@triton.jit  # type: ignore[untyped-decorator]
def _best_of(scores: tl.tensor, ids: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """The best of a block and its id; of equals the smallest."""
    best = tl.max(scores)
    return best, tl.min(tl.where(scores == best, ids, 0x7FFFFFFF))


@triton.jit  # type: ignore[untyped-decorator]
def best_of_groups_kernel(
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
    group_maxima_ptr: tl.tensor,
    token_ids_ptr: tl.tensor,
    runners_up_ptr: tl.tensor,
    num_groups: tl.tensor,
    HAS_FILTERS: tl.constexpr,
    NUM_BEST: tl.constexpr,
    NUM_PLACES: tl.constexpr,  # at least NUM_BEST, a power of 2
    GROUP_WORDS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    groups, places = tl.arange(0, BLOCK_SIZE), tl.arange(0, NUM_PLACES)
    maxima = tl.load(
        group_maxima_ptr + row * num_groups + groups, mask=groups < num_groups, other=NO_SCORE
    )
    chosen = places * 0 + num_groups  # beyond the vocabulary: nothing there is read
    for i in tl.static_range(NUM_BEST):
        best, group = _best_of(maxima, groups)
        chosen = tl.where(places == i, tl.where(best > NO_SCORE, group, num_groups), chosen)
        maxima = tl.where(groups == group, NO_SCORE, maxima)

    words = chosen[:, None] * GROUP_WORDS + tl.arange(0, GROUP_WORDS)[None, :]
    word_ids = tl.reshape(words, [NUM_PLACES * GROUP_WORDS])
    token_ids = word_ids[:, None] * 32 + tl.arange(0, 32)[None, :]
    scores = allowed_scores(
        row, word_ids, logits_ptr, logits_stride, bitmask_ptr, bitmask_stride, mask_rows_ptr,
        stop_token_ids_ptr, num_stops, bans_stops_ptr, vocab_size,
    )  # fmt: skip
    temperature = tl.load(temperature_ptr + row)
    if temperature > 0:
        scores = with_noise(scores, row, word_ids, temperature, seeds_ptr, draws_ptr)
    if HAS_FILTERS and is_filtered(row, temperature_ptr, top_k_ptr, top_p_ptr, min_p_ptr):
        scores = tl.full(scores.shape, NO_SCORE, tl.float32)  # such rows are drawn later
    for i in tl.static_range(NUM_BEST):
        best, token_id = _best_of(scores, token_ids)
        scores = tl.where(token_ids == token_id, NO_SCORE, scores)
        if i == 0:
            token_id = tl.where(best > NO_SCORE, token_id, 0)
            tl.store(token_ids_ptr + row, token_id.to(tl.int64))
        else:
            token_id = tl.where(best > NO_SCORE, token_id, -1)
            tl.store(runners_up_ptr + row * (NUM_BEST - 1) + i - 1, token_id.to(tl.int64))
