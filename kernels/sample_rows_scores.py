"""What the kernels of sample_rows share: the logits of allowed tokens, and noise on them.

A block is some words of a row's bitmask, so [num_words, 32] tokens.
"""

from __future__ import annotations

import triton
import triton.language as tl

from structspec.kernels.philox import gumbel

NO_SCORE = tl.constexpr(float("-inf"))


@triton.jit  # type: ignore[untyped-decorator]
def allowed_scores(
    row: tl.tensor,
    word_ids: tl.tensor,
    logits_ptr: tl.tensor,
    logits_stride: tl.tensor,
    bitmask_ptr: tl.tensor,
    bitmask_stride: tl.tensor,
    mask_rows_ptr: tl.tensor,
    stop_token_ids_ptr: tl.tensor,
    num_stops: tl.tensor,
    bans_stops_ptr: tl.tensor,
    vocab_size: tl.tensor,
) -> tl.tensor:
    """Logits as float32, -inf where a token is forbidden, not a number or none of the vocabulary.

    Those of a word that forbids all 32 are not read.
    """
    bits = tl.arange(0, 32)
    token_ids = word_ids[:, None] * 32 + bits[None, :]
    mask_row = tl.load(mask_rows_ptr + row)
    num_words = tl.where(mask_row >= 0, tl.cdiv(vocab_size, 32), 0)
    words = tl.load(
        bitmask_ptr + mask_row * bitmask_stride + word_ids, mask=word_ids < num_words, other=-1
    )
    scores = tl.load(  # a mask per word, not per token, leaves the loads wide
        logits_ptr + row * logits_stride + token_ids,
        mask=(token_ids < vocab_size) & (words != 0)[:, None],
        other=NO_SCORE,
    ).to(tl.float32)
    is_allowed = (((words[:, None] >> bits[None, :]) & 1) != 0) & (scores == scores)  # not nan
    scores = tl.where(is_allowed, scores, NO_SCORE)
    if tl.load(bans_stops_ptr + row) != 0:
        for i in range(num_stops):
            scores = tl.where(token_ids == tl.load(stop_token_ids_ptr + i), NO_SCORE, scores)
    return scores


@triton.jit  # type: ignore[untyped-decorator]
def with_noise(
    scores: tl.tensor,
    row: tl.tensor,
    word_ids: tl.tensor,
    temperature: tl.tensor,
    seeds_ptr: tl.tensor,
    draws_ptr: tl.tensor,
) -> tl.tensor:
    """scores / temperature + gumbel noise."""
    quads = word_ids[:, None] * 8 + tl.arange(0, 8)[None, :]
    noise = gumbel(tl.load(seeds_ptr + row), tl.load(draws_ptr + row), quads)
    return tl.div_rn(scores, temperature) + noise


@triton.jit  # type: ignore[untyped-decorator]
def better_of(
    scores: tl.tensor, token_ids: tl.tensor, best: tl.tensor, best_id: tl.tensor
) -> tuple[tl.tensor, tl.tensor]:
    """The best of a block and of what was best so far; of equals the first token."""
    block_best = tl.max(scores)
    block_id = tl.min(tl.where(scores == block_best, token_ids, 0x7FFFFFFF))
    is_better = (block_best > best) | ((block_best == best) & (block_id < best_id))
    return tl.where(is_better, block_best, best), tl.where(is_better, block_id, best_id)
