"""One token per row of logits, masked and drawn: argmax, or Gumbel-max where T > 0.

    for each row:
        x = logits, -inf where the row's bitmask has a 0, at stop tokens if they are banned,
            and in place of nan
        token = argmax x                        if T == 0
                argmax x / T + gumbel(seed, draw)      else: a draw from softmax(x / T),
                    over what min_p, top-k and top-p keep (sample_rows_filters.py)

Of equal maxima the first counts; where all is forbidden that is token 0. (Gumbel 1954; Maddison,
Tarlow and Minka, A* sampling, 2014.) The noise is that of philox.py: a row's token hangs on its
logits, mask, temperature, filters, seed and draw alone, not on its place among other rows.

Runners-up are the tokens that come next by the same score. So of any tokens that a mask may allow
the first among token and runners-up is what the row gives under that mask, if one of them is there.

A first kernel finds the maximum of each part of the vocabulary, a second the best of the parts, or
with runners-up that of sample_rows_runners_up.py. Filtered rows go on in sample_rows_limits.py and
sample_rows_filtered.py.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from structspec.kernels.philox import gumbel_reference
from structspec.kernels.sample_rows_filtered import GROUPS_PER_PART, PART_SIZE, draw_filtered
from structspec.kernels.sample_rows_filters import (
    Filters,
    is_filtered,
    is_filtered_reference,
    keep_reference,
)
from structspec.kernels.sample_rows_runners_up import best_of_groups_kernel
from structspec.kernels.sample_rows_scores import allowed_scores, with_noise


def is_allowed_reference(
    vocab_size: int,
    bitmask: Tensor,
    mask_rows: Tensor,
    stop_token_ids: Tensor,
    bans_stops: Tensor,
) -> Tensor:
    """Which tokens each row may draw [num_rows, vocab_size] bool; without waiting for a device."""
    v = torch.arange(vocab_size, device=mask_rows.device)
    bits = (bitmask[mask_rows.clamp(min=0)][:, v // 32] >> (v % 32)) & 1 == 1
    is_allowed = bits | (mask_rows < 0)[:, None]
    return is_allowed & ~(bans_stops.bool()[:, None] & torch.isin(v, stop_token_ids))


def sample_rows_reference(
    logits: Tensor,
    bitmask: Tensor,
    mask_rows: Tensor,
    stop_token_ids: Tensor,
    bans_stops: Tensor,
    temperature: Tensor,
    seeds: Tensor,
    draws: Tensor,
    filters: Filters | None = None,
    runners_up: Tensor | None = None,
) -> Tensor:
    """The specification: the formulas of the module docstring, in float32."""
    scores = logits.float()
    is_allowed = is_allowed_reference(
        scores.shape[1], bitmask, mask_rows, stop_token_ids, bans_stops
    )
    is_allowed &= ~scores.isnan()
    if filters is not None:
        allowed = scores.masked_fill(~is_allowed, float("-inf"))
        is_allowed &= keep_reference(allowed, temperature, filters)
    drawn = (temperature > 0).nonzero()[:, 0]
    noise = gumbel_reference(seeds[drawn], draws[drawn], scores.shape[1])
    scores = scores.index_copy(0, drawn, scores[drawn] / temperature[drawn, None] + noise)
    scores = scores.masked_fill(~is_allowed, float("-inf"))
    if runners_up is not None:
        best = scores.sort(stable=True, dim=-1, descending=True)
        ids = best.indices.masked_fill(best.values.isneginf(), -1)[:, 1 : 1 + runners_up.shape[1]]
        if filters is not None:
            ids = ids.masked_fill(is_filtered_reference(temperature, filters)[:, None], -1)
        runners_up.fill_(-1)[:, : ids.shape[1]] = ids
    return scores.argmax(-1)


@triton.jit  # type: ignore[untyped-decorator]
def _store_group_maxima(
    scores: tl.tensor,
    place: tl.tensor,
    group_maxima_ptr: tl.tensor,
    NUM_GROUPS: tl.constexpr,
    PART_SIZE: tl.constexpr,
) -> None:
    """The maximum of each group of a part's tokens."""
    words = tl.reshape(tl.max(scores, 1), [NUM_GROUPS, PART_SIZE // 32 // NUM_GROUPS])
    groups = place * NUM_GROUPS + tl.arange(0, NUM_GROUPS)
    tl.store(group_maxima_ptr + groups, tl.max(words, 1))


@triton.jit  # type: ignore[untyped-decorator]
def _best_of_parts_kernel(
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
    best_scores_ptr: tl.tensor,
    best_ids_ptr: tl.tensor,
    HAS_FILTERS: tl.constexpr,
    HAS_RUNNERS_UP: tl.constexpr,
    NUM_GROUPS: tl.constexpr,
    PART_SIZE: tl.constexpr,
) -> None:
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    word_ids = part * (PART_SIZE // 32) + tl.arange(0, PART_SIZE // 32)
    token_ids = word_ids[:, None] * 32 + tl.arange(0, 32)[None, :]
    scores = allowed_scores(
        row, word_ids, logits_ptr, logits_stride, bitmask_ptr, bitmask_stride, mask_rows_ptr,
        stop_token_ids_ptr, num_stops, bans_stops_ptr, vocab_size,
    )  # fmt: skip
    place = row * tl.num_programs(1) + part
    is_drawn = tl.load(temperature_ptr + row) > 0
    if HAS_FILTERS and is_filtered(row, temperature_ptr, top_k_ptr, top_p_ptr, min_p_ptr):
        is_drawn = False  # later
        if not HAS_RUNNERS_UP:
            _store_group_maxima(scores, place, group_maxima_ptr, NUM_GROUPS, PART_SIZE)
    if is_drawn:
        temperature = tl.load(temperature_ptr + row)
        scores = with_noise(scores, row, word_ids, temperature, seeds_ptr, draws_ptr)
    if HAS_RUNNERS_UP:
        _store_group_maxima(scores, place, group_maxima_ptr, NUM_GROUPS, PART_SIZE)
    else:
        best = tl.max(scores)
        is_best = (scores == best) & (token_ids < vocab_size)
        tl.store(best_scores_ptr + place, best)
        tl.store(best_ids_ptr + place, tl.min(tl.where(is_best, token_ids, vocab_size)))


@triton.jit  # type: ignore[untyped-decorator]
def _best_part_kernel(
    best_scores_ptr: tl.tensor,
    best_ids_ptr: tl.tensor,
    token_ids_ptr: tl.tensor,
    num_parts: tl.tensor,
    BLOCK_SIZE: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    parts = tl.arange(0, BLOCK_SIZE)
    is_part = parts < num_parts
    place = row * num_parts + parts
    scores = tl.load(best_scores_ptr + place, mask=is_part, other=float("-inf"))
    ids = tl.load(best_ids_ptr + place, mask=is_part, other=0x7FFFFFFF)
    best_id = tl.min(tl.where(scores == tl.max(scores, 0), ids, 0x7FFFFFFF), 0)
    tl.store(token_ids_ptr + row, best_id.to(tl.int64))


def sample_rows_triton(
    logits: Tensor,
    bitmask: Tensor,
    mask_rows: Tensor,
    stop_token_ids: Tensor,
    bans_stops: Tensor,
    temperature: Tensor,
    seeds: Tensor,
    draws: Tensor,
    filters: Filters | None = None,
    out: Tensor | None = None,
    runners_up: Tensor | None = None,
) -> Tensor:
    """The kernels; on a CPU they need Triton's interpreter."""
    num_rows, vocab_size = logits.shape
    token_ids = torch.empty_like(seeds) if out is None else out
    if num_rows == 0:
        return token_ids
    num_parts = triton.cdiv(vocab_size, PART_SIZE)
    num_groups = num_parts * GROUPS_PER_PART
    num_runners_up = 0 if runners_up is None else runners_up.shape[1]
    rows = (
        logits,
        logits.stride(0),
        bitmask,
        bitmask.stride(0),
        mask_rows,
        stop_token_ids,
        len(stop_token_ids),
        bans_stops.view(torch.int8),
        vocab_size,
    )
    randomness = (temperature, seeds, draws)
    limited = (*rows, *randomness, *((None, None, None) if filters is None else filters.columns))
    best_scores = best_ids = group_maxima = None
    if num_runners_up == 0:
        best_scores = temperature.new_empty(num_rows, num_parts)
        best_ids = torch.empty_like(best_scores, dtype=torch.int32)
    if num_runners_up > 0 or filters is not None:
        group_maxima = temperature.new_empty(num_rows, num_groups)
    _best_of_parts_kernel[(num_rows, num_parts)](
        *limited,
        group_maxima,
        best_scores,
        best_ids,
        HAS_FILTERS=filters is not None,
        HAS_RUNNERS_UP=num_runners_up > 0,
        NUM_GROUPS=GROUPS_PER_PART,
        PART_SIZE=PART_SIZE,
    )
    if num_runners_up == 0:
        block_size = triton.next_power_of_2(num_parts)
        _best_part_kernel[(num_rows,)](
            best_scores, best_ids, token_ids, num_parts, BLOCK_SIZE=block_size, num_warps=1
        )
    else:
        best_of_groups_kernel[(num_rows,)](
            *limited,
            group_maxima,
            token_ids,
            runners_up,
            num_groups,
            HAS_FILTERS=filters is not None,
            NUM_BEST=1 + num_runners_up,
            NUM_PLACES=triton.next_power_of_2(1 + num_runners_up),
            GROUP_WORDS=PART_SIZE // GROUPS_PER_PART // 32,
            BLOCK_SIZE=triton.next_power_of_2(num_groups),
        )
    if filters is not None and group_maxima is not None:
        draw_filtered(rows, randomness, filters, group_maxima, token_ids)
    return token_ids


def sample_rows(
    logits: Tensor,  # [num_rows, vocab_size] float32, bfloat16 or float16
    bitmask: Tensor,  # [max_num_masked_rows, num_words] int32
    mask_rows: Tensor,  # [num_rows] int64: the row of bitmask that masks this one, -1: none
    stop_token_ids: Tensor,  # [num_stops] int64
    bans_stops: Tensor,  # [num_rows] bool or int8: whether stop tokens are forbidden here
    temperature: Tensor,  # [num_rows] float32, 0: greedy
    seeds: Tensor,  # [num_rows] int64
    draws: Tensor,  # [num_rows] int64: the token's position in its request's output
    filters: Filters | None = None,  # None: all off, which saves their launches
    out: Tensor | None = None,  # [num_rows] int64
    runners_up: Tensor | None = None,  # [num_rows, num_runners_up] int64, written
) -> Tensor:
    """Token ids [num_rows] int64, always within the vocabulary; in `out` if it is given.

    Runners-up stand in order, the best first, -1 where no more tokens may be drawn. Rows that
    filters limit have none.

    Logits are read once, and not where all 32 tokens of a word are forbidden; rows with min_p are
    read twice, with top-k or top-p three times (but see sample_rows_filtered.py). A CUDA graph may
    capture it.
    """
    num_rows, vocab_size = logits.shape
    assert logits.stride(1) == 1
    assert bitmask.dtype == torch.int32 and bitmask.stride(1) == 1
    assert bitmask.shape[1] == (vocab_size + 31) // 32
    assert temperature.dtype == torch.float32 and stop_token_ids.dtype == torch.int64
    assert mask_rows.dtype == seeds.dtype == draws.dtype == torch.int64
    per_row = [mask_rows, bans_stops, temperature, seeds, draws]
    if filters is not None:
        assert filters.top_k.dtype == torch.int32
        assert filters.top_p.dtype == filters.min_p.dtype == torch.float32
        per_row += filters.columns
    if out is not None:
        per_row.append(out)
    assert all(each.shape == (num_rows,) and each.is_contiguous() for each in per_row)
    if runners_up is not None:
        assert runners_up.dtype == torch.int64 and runners_up.is_contiguous()
        assert runners_up.dim() == 2 and len(runners_up) == num_rows
    args = (
        logits, bitmask, mask_rows, stop_token_ids, bans_stops, temperature, seeds, draws, filters
    )  # fmt: skip
    if logits.is_cuda:
        return sample_rows_triton(*args, out, runners_up)
    token_ids = sample_rows_reference(*args, runners_up)
    return token_ids if out is None else out.copy_(token_ids)
