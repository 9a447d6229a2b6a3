"""Draw one token per row by the inverse CDF, the uniform being an input.

    for each row:
        token = first v whose cumulative sum exceeds uniform * total,
                at the latest the first whose cumulative sum reaches the total

The second line matters only where rounding makes the first come out empty. Either way the token's
probability is not 0. Sums are float64, so that a vocabulary's many small probabilities all count.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


def sample_reference(probs: Tensor, uniform: Tensor) -> Tensor:
    """The specification, long rows one by one: pages for all their sums cost more than the sums."""
    num_together = max(1, 65_536 // probs.shape[1])
    starts = range(0, max(len(probs), 1), num_together)
    parts = [slice(start, start + num_together) for start in starts]
    return torch.cat([_sample_rows(probs[part], uniform[part]) for part in parts])


def _sample_rows(probs: Tensor, uniform: Tensor) -> Tensor:
    cumulative = probs.cumsum(-1, dtype=torch.float64)
    total = cumulative[:, -1:].contiguous()
    token_ids = torch.searchsorted(cumulative, uniform[:, None] * total, right=True)
    token_ids = torch.minimum(token_ids, torch.searchsorted(cumulative, total))
    return token_ids[:, 0].clamp(max=probs.shape[1] - 1)  # a row of nan has no token at all


@triton.jit  # type: ignore[untyped-decorator]
def load_weights(
    p_ptr: tl.tensor,
    scale: tl.tensor,
    q_ptr: tl.tensor,
    q_size: tl.tensor,
    one_hot_id: tl.tensor,
    token_ids: tl.tensor,
    vocab_size: tl.tensor,
) -> tl.tensor:
    """One block of max(scale * p - q, 0) as float64.

    q is a row where q_size is vocab_size, one-hot where one_hot_id is a token, and 0 where they
    are 0 and -1: the weights are then p itself, scaled.
    """
    p = tl.load(p_ptr + token_ids, mask=token_ids < vocab_size, other=0.0)
    q = tl.load(q_ptr + token_ids, mask=token_ids < q_size, other=0.0)
    q = tl.where(token_ids == one_hot_id, 1.0, q)
    return tl.maximum(p.to(tl.float64) * scale - q.to(tl.float64), 0.0)


@triton.jit  # type: ignore[untyped-decorator]
def sum_weights(
    p_ptr: tl.tensor,
    scale: tl.tensor,
    q_ptr: tl.tensor,
    q_size: tl.tensor,
    one_hot_id: tl.tensor,
    vocab_size: tl.tensor,
    BLOCK_SIZE: tl.constexpr,
) -> tl.tensor:
    """The total of a row of weights: the first pass."""
    total = tl.full((), 0.0, tl.float64)
    for start in range(0, vocab_size, BLOCK_SIZE):
        token_ids = start + tl.arange(0, BLOCK_SIZE)
        weights = load_weights(p_ptr, scale, q_ptr, q_size, one_hot_id, token_ids, vocab_size)
        total += tl.sum(weights, 0)
    return total


@triton.jit  # type: ignore[untyped-decorator]
def find_token(
    p_ptr: tl.tensor,
    scale: tl.tensor,
    q_ptr: tl.tensor,
    q_size: tl.tensor,
    one_hot_id: tl.tensor,
    threshold: tl.tensor,
    vocab_size: tl.tensor,
    BLOCK_SIZE: tl.constexpr,
) -> tl.tensor:
    """The first token whose cumulative weight exceeds `threshold`: the second pass."""
    before = tl.full((), 0.0, tl.float64)
    found = vocab_size
    last = 0
    for start in range(0, vocab_size, BLOCK_SIZE):
        token_ids = start + tl.arange(0, BLOCK_SIZE)
        weights = load_weights(p_ptr, scale, q_ptr, q_size, one_hot_id, token_ids, vocab_size)
        # A scan in parallel may round a sum up at a token of weight 0.
        hits = (before + tl.cumsum(weights, 0) > threshold) & (weights > 0)
        found = tl.minimum(found, tl.min(tl.where(hits, token_ids, vocab_size), 0))
        last = tl.maximum(last, tl.max(tl.where(weights > 0, token_ids, 0), 0))
        before += tl.sum(weights, 0)
    return tl.where(found < vocab_size, found, last)


@triton.jit  # type: ignore[untyped-decorator]
def _sample_kernel(
    probs_ptr: tl.tensor,
    uniform_ptr: tl.tensor,
    token_ids_ptr: tl.tensor,
    vocab_size: tl.tensor,
    BLOCK_SIZE: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    p_ptr = probs_ptr + row * vocab_size
    total = sum_weights(p_ptr, 1.0, p_ptr, 0, -1, vocab_size, BLOCK_SIZE)
    threshold = tl.load(uniform_ptr + row) * total
    token_id = find_token(p_ptr, 1.0, p_ptr, 0, -1, threshold, vocab_size, BLOCK_SIZE)
    tl.store(token_ids_ptr + row, token_id)


def sample_triton(probs: Tensor, uniform: Tensor) -> Tensor:
    """The kernel, one program per row; on a CPU it needs Triton's interpreter."""
    num_rows, vocab_size = probs.shape
    token_ids = torch.empty(num_rows, dtype=torch.int64, device=probs.device)
    if num_rows > 0:
        _sample_kernel[(num_rows,)](probs, uniform, token_ids, vocab_size, BLOCK_SIZE=4096)
    return token_ids


def sample(
    probs: Tensor,  # [num_rows, vocab_size] float32; rows sum to 1, or to anything positive
    uniform: Tensor,  # [num_rows] float64 in [0, 1)
) -> Tensor:
    """Token ids [num_rows] int64, never one of probability 0."""
    assert probs.dtype == torch.float32 and probs.is_contiguous()
    assert uniform.dtype == torch.float64 and uniform.shape == probs.shape[:1]
    assert uniform.is_contiguous()
    launch = sample_triton if probs.is_cuda else sample_reference
    return launch(probs, uniform)
