"""What flows between the seven calls of one engine step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from structspec.request import Request


@dataclass(frozen=True, slots=True)
class ScheduledRequest:
    """One request's share of a step."""

    request: Request
    num_tokens: int  # known tokens to compute, from num_computed_tokens on
    num_draft_slots: int  # KV room for at most so many drafts; 0 unless is_sampled
    is_sampled: bool  # the last known token is among them, so this step draws new ones


@dataclass(frozen=True, slots=True)
class Batch:
    """The requests of one step, in the order of their rows."""

    requests: Sequence[ScheduledRequest]

    @property
    def num_tokens(self) -> int:
        """Known tokens computed in this step, without drafts."""
        return sum(scheduled.num_tokens for scheduled in self.requests)


@dataclass(frozen=True, slots=True)
class Draft:
    """Proposed tokens, one list per scheduled request (empty where there are none).

    `probs[i]` is q, the distribution each of request i's drafts was drawn from; None means one-hot.
    """

    token_ids: Sequence[Sequence[int]]
    probs: Sequence[torch.Tensor | None]  # each [num_drafts, vocab_size] float32
    is_forced: Sequence[Sequence[bool]]  # whether the grammar forces its text, or the end


@dataclass(frozen=True, slots=True)
class Mask:
    """The bitmask rows of one step: only constrained requests have any.

    Sampled request i has 1 + len(draft.token_ids[i]) logits rows, in batch order; unsampled ones
    have none. `rows[j]` is the logits row that `bitmask[j]` masks. The draft at `num_valid[i]`, if
    there is one, is forbidden by the grammar and must be rejected there at the latest; rows behind
    it are not to be used.
    """

    bitmask: torch.Tensor  # [num_masked_rows, num_words] int32
    rows: torch.Tensor  # [num_masked_rows] int64
    num_valid: Sequence[int]  # per scheduled request


@dataclass(frozen=True, slots=True)
class SamplerOutput:
    """New tokens per scheduled request: accepted drafts, then one recovered or bonus token."""

    token_ids: Sequence[Sequence[int]]  # empty for unsampled requests
    num_accepted: Sequence[int]
