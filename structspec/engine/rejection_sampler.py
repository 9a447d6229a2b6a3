"""From logits to new tokens: mask, verify drafts, draw the token behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from structspec.engine.batch import Batch, Draft, Mask, SamplerOutput
from structspec.engine.sampling_probs import compute_target_probs
from structspec.kernels.apply_bitmask import apply_bitmask
from structspec.kernels.rejection_sample import rejection_sample
from structspec.kernels.verify_greedy import verify_greedy
from structspec.request import Request


@dataclass(frozen=True, slots=True)
class _Verified:
    """One sampled request: where it stands in the batch and which logits rows are its own."""

    index: int  # in the batch, the draft and the output
    request: Request
    first_row: int  # of 1 + len(draft_token_ids) rows
    draft_token_ids: Sequence[int]
    draft_probs: Tensor | None
    num_valid: int

    @property
    def rows(self) -> range:
        return range(self.first_row, self.first_row + 1 + len(self.draft_token_ids))


class RejectionSampler:
    """Draws every request's next tokens, distributed as its masked target alone would draw them.

    Called once per step, with one logits row per draft and one more for each sampled request.
    Changes `logits` in place. Greedy requests cost an argmax; requests with equal seeds and
    drafts draw equal tokens whatever else is in the batch.
    """

    def __init__(self, vocab_size: int, stop_token_ids: Sequence[int] = ()) -> None:
        self._vocab_size = vocab_size
        self._stop_token_ids = list(stop_token_ids)

    def __call__(
        self,
        logits: Tensor,  # [num_rows, vocab_size]
        batch: Batch,
        draft: Draft,
        mask: Mask,
    ) -> SamplerOutput:
        """New tokens per scheduled request; none for those that are not sampled."""
        assert logits.shape[1] == self._vocab_size
        apply_bitmask(logits, mask.bitmask, mask.rows)
        sampled = _sampled_requests(batch, draft, mask)
        assert logits.shape[0] == sum(len(one.rows) for one in sampled)
        self._forbid_ignored_stops(logits, sampled)

        token_ids: list[Sequence[int]] = [()] * len(batch.requests)
        num_accepted = [0] * len(batch.requests)
        for group, verify in (
            ([one for one in sampled if one.request.params.temperature == 0], _verify_greedy),
            ([one for one in sampled if one.request.params.temperature > 0], _verify_random),
        ):
            if not group:
                continue
            padded, accepted = verify(logits, group)
            for one, row, n in zip(group, padded.tolist(), accepted.tolist(), strict=True):
                token_ids[one.index] = row[: n + 1]
                num_accepted[one.index] = n
        return SamplerOutput(token_ids, num_accepted)

    def _forbid_ignored_stops(self, logits: Tensor, sampled: Sequence[_Verified]) -> None:
        """`ignore_eos` writes on past stop tokens; a constraint decides its own end."""
        rows = [
            row
            for one in sampled
            if one.request.params.ignore_eos and one.request.compiled is None
            for row in one.rows
        ]
        if rows and self._stop_token_ids:
            row_ids = torch.tensor(rows, device=logits.device)[:, None]
            logits[row_ids, self._stop_token_ids] = float("-inf")


def _sampled_requests(batch: Batch, draft: Draft, mask: Mask) -> list[_Verified]:
    sampled, row = [], 0
    for i, scheduled in enumerate(batch.requests):
        if scheduled.is_sampled:
            one = _Verified(
                i, scheduled.request, row, draft.token_ids[i], draft.probs[i], mask.num_valid[i]
            )
            sampled.append(one)
            row += len(one.rows)
    return sampled


def _verify_greedy(logits: Tensor, group: Sequence[_Verified]) -> tuple[Tensor, Tensor]:
    targets = _own_rows(logits.argmax(dim=-1), group)
    return verify_greedy(targets, *_layout(group, logits.device))


def _verify_random(logits: Tensor, group: Sequence[_Verified]) -> tuple[Tensor, Tensor]:
    params = [one.request.params for one in group for _ in one.rows]
    target_probs = compute_target_probs(_own_rows(logits, group), params)
    draft_token_ids, cu_num_draft_tokens, num_valid, max_num_drafts = _layout(group, logits.device)
    draft_probs, draft_probs_rows = _gather_draft_probs(group, logits.device)
    accept_uniform, draw_uniform = _draw_uniforms(group)
    return rejection_sample(
        target_probs,
        draft_token_ids,
        draft_probs,
        draft_probs_rows,
        cu_num_draft_tokens,
        num_valid,
        accept_uniform.to(logits.device),
        draw_uniform.to(logits.device),
        max_num_drafts,
    )


def _own_rows(values: Tensor, group: Sequence[_Verified]) -> Tensor:
    """The rows of these requests; no copy where they are all there are."""
    rows = [row for one in group for row in one.rows]
    if len(rows) == values.shape[0]:
        return values
    return values[torch.tensor(rows, device=values.device)]


def _layout(group: Sequence[_Verified], device: torch.device) -> tuple[Tensor, Tensor, Tensor, int]:
    """Draft ids [num_drafts], cu_num_draft_tokens, num_valid and the longest draft's length."""
    lengths = [len(one.draft_token_ids) for one in group]
    flat = [token_id for one in group for token_id in one.draft_token_ids]
    return (
        torch.tensor(flat, dtype=torch.int64, device=device),
        torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device),
        torch.tensor([one.num_valid for one in group], dtype=torch.int32, device=device),
        max(lengths),
    )


def _gather_draft_probs(
    group: Sequence[_Verified], device: torch.device
) -> tuple[Tensor | None, Tensor | None]:
    """q of the requests that have one, and for each draft its row there (-1: one-hot)."""
    parts = [one.draft_probs for one in group if one.draft_probs is not None]
    if not parts:
        return None, None
    rows, num_rows = [], 0
    for one in group:
        k = len(one.draft_token_ids)
        if one.draft_probs is None:
            rows += [-1] * k
        else:
            rows += range(num_rows, num_rows + k)
            num_rows += k
    return torch.cat(parts), torch.tensor(rows, dtype=torch.int64, device=device)


def _draw_uniforms(group: Sequence[_Verified]) -> tuple[Tensor, Tensor]:
    """Per draft one uniform and per request one more, from each request's own generator."""
    parts = [
        torch.rand(
            len(one.draft_token_ids) + 1, dtype=torch.float64, generator=_generator(one.request)
        )
        for one in group
    ]
    return torch.cat([part[:-1] for part in parts]), torch.stack([part[-1] for part in parts])


def _generator(request: Request) -> torch.Generator:
    """The request's own generator, made on first use: seeded by `params.seed`, else at random."""
    if request.generator is None:
        request.generator = torch.Generator()
        if request.params.seed is None:
            request.generator.seed()
        else:
            request.generator.manual_seed(request.params.seed)
    return request.generator
