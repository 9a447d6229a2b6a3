"""Which of a request's drafts stand, and the token behind them, from its masked logits.

    greedy               target = argmax of each row          drafts that equal it stand
    one-hot drafts       target = a draw from each row        drafts that equal it stand
    drafts drawn from q  accept with min(1, p / q)            else recover from max(p - q, 0)

The second is the third with q one-hot, its randomness arranged so that the output does not depend
on the drafts at all: a seed gives the same tokens with and without speculation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from structspec.engine.randomness import ACCEPT, DRAW, DRAW_UNSEEN, uniforms
from structspec.engine.sampling_probs import compute_target_probs
from structspec.kernels.rejection_sample import rejection_sample
from structspec.kernels.sample import sample
from structspec.kernels.verify_greedy import verify_greedy
from structspec.request import Request


@dataclass(frozen=True, slots=True)
class Verified:
    """One sampled request: where it stands in the batch and which logits rows are its own."""

    index: int  # in the batch, the draft and the output
    request: Request
    first_row: int  # of 1 + len(draft_token_ids) rows
    position: int  # in its output, of the token that its first row draws
    draft_token_ids: Sequence[int]
    draft_probs: Tensor | None
    num_valid: int
    is_unseen: bool = False  # by its grammar, which may refuse what is drawn

    @property
    def rows(self) -> range:
        return range(self.first_row, self.first_row + 1 + len(self.draft_token_ids))

    @property
    def verifier(self) -> Verifier:
        if self.request.params.temperature == 0:
            return _verify_greedy
        return _verify_sampled if self.draft_probs is None else _verify_probabilistic


# Tokens [len(group), longest draft + 1], padded with -1, and how many drafts were accepted.
Verifier = Callable[[Tensor, Sequence[Verified]], tuple[Tensor, Tensor]]


def verify(logits: Tensor, sampled: Sequence[Verified]) -> tuple[list[list[int]], list[int]]:
    """New tokens of each request, and how many of its drafts are among them."""
    token_ids: list[list[int]] = [[] for _ in sampled]
    num_accepted = [0] * len(sampled)
    for verifier in (_verify_greedy, _verify_sampled, _verify_probabilistic):
        places = [i for i, one in enumerate(sampled) if one.verifier is verifier]
        if places:
            padded, accepted = verifier(logits, [sampled[i] for i in places])
            for i, row, n in zip(places, padded.tolist(), accepted.tolist(), strict=True):
                token_ids[i] = row[: n + 1]
                num_accepted[i] = n
    return token_ids, num_accepted


def _verify_greedy(logits: Tensor, group: Sequence[Verified]) -> tuple[Tensor, Tensor]:
    targets = _own_rows(logits.argmax(dim=-1), group)
    return verify_greedy(targets, *_layout(group, logits.device))


def _verify_sampled(logits: Tensor, group: Sequence[Verified]) -> tuple[Tensor, Tensor]:
    # drawn again in place of a refused token with the same number, some would come too often
    draws = [
        u
        for one in group
        for u in _uniforms(one, DRAW_UNSEEN if one.is_unseen else DRAW, len(one.rows))
    ]
    targets = sample(_target_probs(logits, group), _float64(draws, logits.device))
    return verify_greedy(targets, *_layout(group, logits.device))


def _verify_probabilistic(logits: Tensor, group: Sequence[Verified]) -> tuple[Tensor, Tensor]:
    device = logits.device
    draft_token_ids, cu_num_draft_tokens, num_valid, max_num_drafts = _layout(group, device)
    return rejection_sample(
        _target_probs(logits, group),
        draft_token_ids,
        torch.cat([one.draft_probs for one in group if one.draft_probs is not None]),
        torch.arange(len(draft_token_ids), device=device),
        cu_num_draft_tokens,
        num_valid,
        _float64(
            [u for one in group for u in _uniforms(one, ACCEPT, len(one.draft_token_ids))], device
        ),
        # Which of the rows draws is settled by the others: any position of the step will do.
        _float64([u for one in group for u in _uniforms(one, DRAW, 1)], device),
        max_num_drafts,
    )


def _uniforms(one: Verified, purpose: int, count: int) -> list[float]:
    return uniforms(one.request.seed, purpose, one.position, count)


def _float64(values: Sequence[float], device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, device=device)


def _target_probs(logits: Tensor, group: Sequence[Verified]) -> Tensor:
    params = [one.request.params for one in group for _ in one.rows]
    return compute_target_probs(_own_rows(logits, group), params)


def _own_rows(values: Tensor, group: Sequence[Verified]) -> Tensor:
    """The rows of these requests; no copy where they are all there are."""
    rows = [row for one in group for row in one.rows]
    if len(rows) == values.shape[0]:
        return values
    return values[torch.tensor(rows, device=values.device)]


def _layout(group: Sequence[Verified], device: torch.device) -> tuple[Tensor, Tensor, Tensor, int]:
    """Draft ids [num_drafts], cu_num_draft_tokens, num_valid and the longest draft's length."""
    lengths = [len(one.draft_token_ids) for one in group]
    flat = [token_id for one in group for token_id in one.draft_token_ids]
    return (
        torch.tensor(flat, dtype=torch.int64, device=device),
        torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device),
        torch.tensor([one.num_valid for one in group], dtype=torch.int32, device=device),
        max(lengths),
    )
