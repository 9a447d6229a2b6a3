"""One token per row of logits, masked and drawn in one pass: argmax, or Gumbel-max where T > 0.

    for each row:
        x = logits, -inf where the row's bitmask has a 0, at stop tokens if they are banned,
            and in place of nan
        token = argmax x                        if T == 0
                argmax x / T + gumbel(seed, draw)      else: a draw from softmax(x / T)

Of equal maxima the first counts; where all is forbidden that is token 0. (Gumbel 1954; Maddison,
Tarlow and Minka, A* sampling, 2014.) The noise is that of philox.py: a row's token hangs on its
logits, mask, temperature, seed and draw alone, not on its place among other rows.

A first kernel finds the maximum of each part of the vocabulary, a second the best of the parts.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from structspec.kernels.philox import gumbel, gumbel_reference

_PART_SIZE = 2048  # tokens: 63 programs for a row of 128,256; results do not depend on it


def sample_rows_reference(
    logits: Tensor,
    bitmask: Tensor,
    mask_rows: Tensor,
    stop_token_ids: Tensor,
    bans_stops: Tensor,
    temperature: Tensor,
    seeds: Tensor,
    draws: Tensor,
) -> Tensor:
    """The specification: the formulas of the module docstring, in float32."""
    scores = logits.float()
    v = torch.arange(scores.shape[1], device=scores.device)
    is_allowed = torch.ones_like(scores, dtype=torch.bool)
    masked = (mask_rows >= 0).nonzero()[:, 0]
    is_allowed[masked] = (bitmask[mask_rows[masked]][:, v // 32] >> (v % 32)) & 1 == 1
    is_allowed &= ~(bans_stops.bool()[:, None] & torch.isin(v, stop_token_ids))
    drawn = (temperature > 0).nonzero()[:, 0]
    noise = gumbel_reference(seeds[drawn], draws[drawn], scores.shape[1])
    scores = scores.index_copy(0, drawn, scores[drawn] / temperature[drawn, None] + noise)
    is_allowed &= ~scores.isnan()
    return scores.masked_fill(~is_allowed, float("-inf")).argmax(-1)


@triton.jit  # type: ignore[untyped-decorator]
def _best_of_parts_kernel(
    logits_ptr: tl.tensor,
    bitmask_ptr: tl.tensor,
    mask_rows_ptr: tl.tensor,
    stop_token_ids_ptr: tl.tensor,
    bans_stops_ptr: tl.tensor,
    temperature_ptr: tl.tensor,
    seeds_ptr: tl.tensor,
    draws_ptr: tl.tensor,
    best_scores_ptr: tl.tensor,
    best_ids_ptr: tl.tensor,
    logits_stride: tl.tensor,
    bitmask_stride: tl.tensor,
    vocab_size: tl.tensor,
    num_stops: tl.tensor,
    PART_SIZE: tl.constexpr,
) -> None:
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    word_ids = part * (PART_SIZE // 32) + tl.arange(0, PART_SIZE // 32)
    bits = tl.arange(0, 32)
    token_ids = word_ids[:, None] * 32 + bits[None, :]
    is_token = token_ids < vocab_size
    mask_row = tl.load(mask_rows_ptr + row)
    num_words = tl.where(mask_row >= 0, tl.cdiv(vocab_size, 32), 0)
    words = tl.load(
        bitmask_ptr + mask_row * bitmask_stride + word_ids, mask=word_ids < num_words, other=-1
    )
    scores = tl.load(  # a mask per word, not per token, leaves the loads wide
        logits_ptr + row * logits_stride + token_ids,
        mask=is_token & (words != 0)[:, None],
        other=float("-inf"),
    ).to(tl.float32)
    temperature = tl.load(temperature_ptr + row)
    if temperature > 0:
        quads = word_ids[:, None] * 8 + tl.arange(0, 8)[None, :]
        noise = gumbel(tl.load(seeds_ptr + row), tl.load(draws_ptr + row), quads)
        scores = tl.div_rn(scores, temperature) + noise
    is_allowed = (((words[:, None] >> bits[None, :]) & 1) != 0) & (scores == scores)  # not nan
    scores = tl.where(is_allowed, scores, float("-inf"))
    if tl.load(bans_stops_ptr + row) != 0:
        for i in range(num_stops):
            is_stop = token_ids == tl.load(stop_token_ids_ptr + i)
            scores = tl.where(is_stop, float("-inf"), scores)
    best = tl.max(scores)
    best_id = tl.min(tl.where((scores == best) & is_token, token_ids, vocab_size))
    place = row * tl.num_programs(1) + part
    tl.store(best_scores_ptr + place, best)
    tl.store(best_ids_ptr + place, best_id)


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
    out: Tensor | None = None,
) -> Tensor:
    """The kernels; on a CPU they need Triton's interpreter."""
    num_rows, vocab_size = logits.shape
    token_ids = torch.empty_like(seeds) if out is None else out
    if num_rows == 0:
        return token_ids
    num_parts = triton.cdiv(vocab_size, _PART_SIZE)
    best_scores = temperature.new_empty(num_rows, num_parts)
    best_ids = torch.empty_like(best_scores, dtype=torch.int32)
    _best_of_parts_kernel[(num_rows, num_parts)](
        logits,
        bitmask,
        mask_rows,
        stop_token_ids,
        bans_stops.view(torch.int8),
        temperature,
        seeds,
        draws,
        best_scores,
        best_ids,
        logits.stride(0),
        bitmask.stride(0),
        vocab_size,
        len(stop_token_ids),
        PART_SIZE=_PART_SIZE,
    )
    block_size = triton.next_power_of_2(num_parts)
    _best_part_kernel[(num_rows,)](
        best_scores, best_ids, token_ids, num_parts, BLOCK_SIZE=block_size, num_warps=1
    )
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
    out: Tensor | None = None,  # [num_rows] int64
) -> Tensor:
    """Token ids [num_rows] int64, always within the vocabulary; in `out` if it is given.

    Logits are read once, and not where all 32 tokens of a word are forbidden. A CUDA graph may
    capture it.
    """
    num_rows, vocab_size = logits.shape
    assert logits.stride(1) == 1
    assert bitmask.dtype == torch.int32 and bitmask.stride(1) == 1
    assert bitmask.shape[1] == (vocab_size + 31) // 32
    assert temperature.dtype == torch.float32 and stop_token_ids.dtype == torch.int64
    assert mask_rows.dtype == seeds.dtype == draws.dtype == torch.int64
    per_row = (mask_rows, bans_stops, temperature, seeds, draws, *([] if out is None else [out]))
    assert all(each.shape == (num_rows,) and each.is_contiguous() for each in per_row)
    args = (logits, bitmask, mask_rows, stop_token_ids, bans_stops, temperature, seeds, draws)
    if logits.is_cuda:
        return sample_rows_triton(*args, out)
    token_ids = sample_rows_reference(*args)
    return token_ids if out is None else out.copy_(token_ids)
