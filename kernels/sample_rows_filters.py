"""Which tokens min_p, top-k and top-p leave to draw from.

    z[v] = (best logit - logit[v]) / T               float32; forbidden tokens: infinite
    w[v] = e^-z[v]                                   so the best weighs 1
    min_p  keeps  z <= -log min_p
    top_k  keeps  z <= the k-th smallest z
    top_p  keeps  z <= the last z needed, the smallest first, to reach top_p of what is left by both

So each is a limit on z, equals are kept or dropped together, and a row needs the smallest limit.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Filters:
    """What each row draws from; rows at temperature 0 look at none of it."""

    top_k: Tensor  # [num_rows] int32, 0: off
    top_p: Tensor  # [num_rows] float32, 1: off
    min_p: Tensor  # [num_rows] float32, 0: off

    @property
    def columns(self) -> tuple[Tensor, Tensor, Tensor]:
        """All three, as kernels take them."""
        return self.top_k, self.top_p, self.min_p


def keep_reference(scores: Tensor, temperature: Tensor, filters: Filters) -> Tensor:
    """Whether each token may be drawn [num_rows, vocab_size]; forbidden `scores` are -inf."""
    vocab_size = scores.shape[1]
    best = scores.amax(-1, keepdim=True)
    z = ((best - scores) / temperature[:, None]).masked_fill(scores == best, 0)
    z = z.masked_fill(scores.isneginf() | z.isnan(), float("inf"))
    limits = filters.min_p.double().log().abs().float()[:, None]
    ordered = z.sort(-1).values
    k = torch.where(filters.top_k > 0, filters.top_k, vocab_size).clamp(max=vocab_size)
    limits = limits.minimum(ordered.gather(1, k.long()[:, None] - 1))
    w = (-ordered.double()).exp().masked_fill(ordered > limits, 0)
    wanted = w.sum(-1, keepdim=True) * filters.top_p.double()[:, None]
    num_before = (w.cumsum(-1) < wanted).sum(-1, keepdim=True).clamp(max=vocab_size - 1)
    nucleus = ordered.gather(1, num_before)
    limits = torch.where(filters.top_p[:, None] < 1, limits.minimum(nucleus), limits)
    return (z <= limits) | (temperature == 0)[:, None]


def is_filtered_reference(temperature: Tensor, filters: Filters) -> Tensor:
    """Whether each row is drawn from less than all that is allowed [num_rows]."""
    is_limited = (filters.top_k > 0) | (filters.min_p > 0) | (filters.top_p < 1)
    return is_limited & (temperature > 0)


@triton.jit  # type: ignore[untyped-decorator]
def is_filtered(
    row: tl.tensor,
    temperature_ptr: tl.tensor,
    top_k_ptr: tl.tensor,
    top_p_ptr: tl.tensor,
    min_p_ptr: tl.tensor,
) -> tl.tensor:
    """Whether a row is drawn from less than all that is allowed."""
    is_limited = (tl.load(top_k_ptr + row) > 0) | (tl.load(min_p_ptr + row) > 0)
    is_limited = is_limited | (tl.load(top_p_ptr + row) < 1)
    return is_limited & (tl.load(temperature_ptr + row) > 0)
