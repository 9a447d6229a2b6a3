"""From logits to new tokens: edit, mask, verify drafts, draw what follows them (verifiers.py)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from structspec.engine.batch import (
    Batch,
    Draft,
    Mask,
    ReadySampled,
    SamplerOutput,
)
from structspec.engine.logit_edits import collect_edits
from structspec.engine.logprobs import StepLogprobs, find_logprob_rows
from structspec.engine.randomness import draw_position
from structspec.engine.synthetic import accept_some
from structspec.engine.verifiers import Verification, Verified
from structspec.kernels.apply_bitmask import apply_bitmask
from structspec.speculative_config import SpeculativeConfig
from structspec.verification import acceptance_chances


class RejectionSampler:
    """Draws every request's next tokens, distributed as its masked target alone would draw them.

    Called once per step, with one logits row per draft and one more for each sampled request.
    Changes `logits` in place. Greedy requests cost an argmax. What a request draws at a position
    hangs on its seed alone, not on what is drafted nor on what else is in the batch.
    """

    def __init__(
        self,
        vocab_size: int,
        stop_token_ids: Sequence[int] = (),
        speculative: SpeculativeConfig | None = None,
    ) -> None:
        speculative = speculative or SpeculativeConfig()
        self._verify = Verification(speculative)
        self._chances = acceptance_chances(speculative)
        self._vocab_size = vocab_size
        self._stop_token_ids = list(stop_token_ids)

    def __call__(
        self,
        logits: Tensor,  # [num_rows, vocab_size]
        batch: Batch,
        draft: Draft,
        mask: Mask,
    ) -> ReadySampled:
        """New tokens per scheduled request; none for those that are not sampled."""
        assert logits.shape[1] == self._vocab_size
        wanted = find_logprob_rows(batch, draft)
        logprobs = StepLogprobs(wanted, logits) if wanted is not None else None
        if (edits := collect_edits(batch, draft)) is not None:
            edits.apply(logits)
        bitmask = mask.bitmask[mask.places]
        apply_bitmask(logits, bitmask.to(logits.device), mask.rows.to(logits.device))
        if self._chances is not None:
            mask = accept_some(batch, draft, mask, self._chances)
        sampled = _sampled_requests(batch, draft, mask)
        num_rows = sum(len(one.rows) for one in sampled)
        assert logits.shape[0] == num_rows + batch.num_prompt_rows
        logits = logits[:num_rows]
        self._forbid_ignored_stops(logits, sampled)
        if logprobs is not None and (rows := logprobs.processed_rows) is not None:
            logprobs.process(logits[rows])

        token_ids: list[Sequence[int]] = [()] * len(batch.requests)
        num_accepted = [0] * len(batch.requests)
        for one, ids, n in zip(sampled, *self._verify(logits, sampled), strict=True):
            token_ids[one.index] = ids
            num_accepted[one.index] = n
        output = SamplerOutput(token_ids, num_accepted)
        if logprobs is not None:
            new = [torch.tensor(token_ids[one.index]) for one in sampled]
            padded = pad_sequence(new, batch_first=True) if new else torch.zeros(0, 0)
            computed = logprobs.of_tokens(padded.to(logits.device)).fetched(is_awaited=True)
            output = computed.added_to(output)
        return ReadySampled(output, logits.device)

    def _forbid_ignored_stops(self, logits: Tensor, sampled: Sequence[Verified]) -> None:
        """`ignore_eos` writes on past stop tokens; a constraint decides its own end."""
        rows = [
            row
            for one in sampled
            if one.request.params.ignore_eos and not one.request.is_judged
            for row in one.rows
        ]
        if rows and self._stop_token_ids:
            row_ids = torch.tensor(rows, device=logits.device)[:, None]
            logits[row_ids, self._stop_token_ids] = float("-inf")


def _sampled_requests(batch: Batch, draft: Draft, mask: Mask) -> list[Verified]:
    sampled, row = [], 0
    for i, (scheduled, guesses) in enumerate(zip(batch.requests, draft.guesses, strict=True)):
        if scheduled.is_sampled:
            one = Verified(
                i,
                scheduled.request,
                row,
                draw_position(scheduled, draft.num_certain[i]),
                guesses,
                draft.probs[i],
                mask.num_valid[i],
                is_unseen=scheduled.request.is_judged and i not in mask.jobs,
            )
            sampled.append(one)
            row += len(one.rows)
    return sampled
