"""The distribution each row draws from: temperature, then min_p, top-k and top-p."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from structspec.request import SamplingParams

_FIRST_PREFIX = 256  # top-p looks at so many best tokens first: sorting a vocabulary is dear


def compute_target_probs(
    logits: Tensor,  # [num_rows, vocab_size], forbidden tokens at -inf
    params: Sequence[SamplingParams],  # [num_rows], none of them greedy
) -> Tensor:
    """Normalised float32 probabilities, [num_rows, vocab_size]; `logits` is left unchanged.

    min_p keeps what has at least `min_p` times the best probability; top-k what is at least as
    likely as the k-th best; top-p, on what is left, what is at least as likely as the last token
    needed to reach `top_p`. Equals are kept or dropped together, so no order among them matters.
    """
    scores = logits.float() - logits.amax(dim=-1, keepdim=True).float()  # best is 0: no overflow
    scores /= _column([p.temperature for p in params], scores.device)
    _apply_min_p(scores, [p.min_p for p in params])
    _apply_top_k(scores, [p.top_k for p in params])
    _apply_top_p(scores, [p.top_p for p in params])
    return scores.softmax(dim=-1)


def _column(values: Sequence[float], device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.float32, device=device)[:, None]


def _drop_below(scores: Tensor, rows: Sequence[int], least: Tensor) -> None:
    """Set to -inf what scores below `least` [len(rows), 1] in these rows."""
    for row, bound in zip(rows, least, strict=True):
        scores[row].masked_fill_(scores[row] < bound, float("-inf"))


def _apply_min_p(scores: Tensor, min_p: Sequence[float]) -> None:
    rows = [row for row, value in enumerate(min_p) if value > 0]
    if rows:
        _drop_below(scores, rows, _column([min_p[row] for row in rows], scores.device).log())


def _apply_top_k(scores: Tensor, top_k: Sequence[int]) -> None:
    vocab_size = scores.shape[1]
    rows = [row for row, k in enumerate(top_k) if 0 < k < vocab_size]
    if rows:
        ks = [top_k[row] for row in rows]
        best = scores[rows].topk(max(ks), dim=-1).values
        last = torch.tensor(ks, device=scores.device)[:, None] - 1
        _drop_below(scores, rows, best.gather(1, last))


def _apply_top_p(scores: Tensor, top_p: Sequence[float]) -> None:
    rows = [row for row, value in enumerate(top_p) if value < 1]
    size = min(_FIRST_PREFIX, scores.shape[1])
    while rows:
        wanted = _column([top_p[row] for row in rows], scores.device)
        least, is_reached = _top_p_bound(scores[rows], wanted, size)
        reached = is_reached.tolist()
        done = [n for n, flag in enumerate(reached) if flag]
        _drop_below(scores, [rows[n] for n in done], least[done])
        rows = [row for row, flag in zip(rows, reached, strict=True) if not flag]
        size = min(size * 16, scores.shape[1])


def _top_p_bound(scores: Tensor, top_p: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The least score to keep [num_rows, 1], and whether the `size` best tokens settle it."""
    best = scores.topk(size, dim=-1).values  # sorted, best first
    total = scores.exp().sum(dim=-1, keepdim=True)
    mass = best.exp().cumsum(dim=-1) / total
    # The first token whose cumulative mass reaches top_p is the last one kept.
    last = (mass < top_p).sum(dim=-1, keepdim=True)
    is_reached = (last < size)[:, 0] | torch.tensor(size == scores.shape[1], device=scores.device)
    return best.gather(1, last.clamp(max=size - 1)), is_reached
