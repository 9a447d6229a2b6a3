"""The distribution each row draws from: temperature, then min_p, top-k and top-p."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from structspec.request import SamplingParams

_FIRST_PREFIX = 64  # top-p looks at so many best tokens first: sorting a vocabulary is dear


def compute_target_probs(
    logits: Tensor,  # [num_rows, vocab_size], forbidden tokens at -inf
    params: Sequence[SamplingParams],  # [num_rows], none of them greedy
) -> Tensor:
    """Normalised float32 probabilities, [num_rows, vocab_size]; `logits` is left unchanged.

    min_p keeps what has at least `min_p` times the best probability; top-k what is at least as
    likely as the k-th best; top-p, on what is left, what is at least as likely as the last token
    needed to reach `top_p`. Equals are kept or dropped together, so no order among them matters.
    """
    # A normal float32: a smaller one may count as 0, a larger one is infinite, and neither 0 / 0
    # nor a forbidden token's -inf / inf is a number.
    least, most = torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max
    temperatures = [min(max(p.temperature, least), most) for p in params]
    temperature = _column(temperatures, logits.device)
    scores = logits.float() - logits.amax(dim=-1, keepdim=True).float()
    weights = scores.div_(temperature).exp_()  # the best is 1: no temperature overflows
    if any(p.min_p > 0 for p in params):
        _drop_below(weights, _column([p.min_p for p in params], logits.device))
    if any(p.top_k > 0 for p in params):
        _drop_below(weights, _top_k_bounds(weights, [p.top_k for p in params]))
    if any(p.top_p < 1 for p in params):
        _drop_below(weights, _top_p_bounds(weights, [p.top_p for p in params]))
    return weights.div_(weights.sum(dim=-1, keepdim=True))


def _column(values: Sequence[float], device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.float32, device=device)[:, None]


def _drop_below(weights: Tensor, bounds: Tensor) -> None:
    """Set to 0 what is below its row's bound; a bound of 0 keeps everything."""
    # Comparing into floats and multiplying takes a CPU a fifth of the time of masked_fill_.
    weights.mul_(torch.ge(weights, bounds, out=torch.empty_like(weights)))


def _top_k_bounds(weights: Tensor, top_k: Sequence[int]) -> Tensor:
    """The k-th largest weight of each row [num_rows, 1], 0 where top-k is off."""
    num_rows, vocab_size = weights.shape
    bounds = weights.new_zeros(num_rows, 1)
    rows = [row for row, k in enumerate(top_k) if 0 < k < vocab_size]
    if rows:
        ks = torch.tensor([top_k[row] for row in rows], device=weights.device)
        best = weights[rows].topk(int(ks.max()), dim=-1).values
        bounds[rows] = best.gather(1, ks[:, None] - 1)
    return bounds


def _top_p_bounds(weights: Tensor, top_p: Sequence[float]) -> Tensor:
    """The weight at which each row's largest ones reach its top_p, 0 where top-p is off."""
    num_rows, vocab_size = weights.shape
    bounds = weights.new_zeros(num_rows, 1)
    wanted = weights.sum(dim=-1, keepdim=True) * _column(top_p, weights.device)
    rows = [row for row, value in enumerate(top_p) if value < 1]
    size = min(_FIRST_PREFIX, vocab_size)
    while rows:
        best = weights[rows].topk(size, dim=-1).values  # sorted, largest first
        # The first whose cumulative sum reaches the wanted mass is the last one kept.
        last = (best.cumsum(dim=-1) < wanted[rows]).sum(dim=-1, keepdim=True)
        bounds[rows] = best.gather(1, last.clamp(max=size - 1))
        if size == vocab_size:
            break
        rows = [row for row, n in zip(rows, last[:, 0].tolist(), strict=True) if n == size]
        size = min(size * 16, vocab_size)
    return bounds
