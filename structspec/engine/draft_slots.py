"""The drafts' room in a step: how many tokens each request gets, and KV blocks for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from structspec.config import EngineConfig
from structspec.engine.batch import Batch, Drafting, ScheduledRequest
from structspec.engine.block_manager import BlockManager
from structspec.request import Request


class Share(NamedTuple):
    """What one request computes in a step, drafts aside."""

    request: Request
    num_tokens: int
    is_sampled: bool


def count_prompt_rows(shares: Sequence[Share]) -> Sequence[int]:
    """How many tokens of each have rows for prompt_logprobs: all before the prompt's last."""
    if all(share.request.params.prompt_logprobs is None for share in shares):
        return [0] * len(shares)
    return [_count_prompt_rows(share.request, share.num_tokens) for share in shares]


def _count_prompt_rows(request: Request, num_tokens: int) -> int:
    if not request.needs_prompt_rows:
        return 0
    num_left = request.num_prompt_tokens - 1 - request.num_computed_tokens
    return max(0, min(num_tokens, num_left))


class DraftSlots:
    """Shares out what a step has left for drafts; they only get what nobody else needs."""

    def __init__(
        self, config: EngineConfig, block_manager: BlockManager, max_model_len: int
    ) -> None:
        self._config = config
        self._block_manager = block_manager
        self._max_model_len = max_model_len

    def share_out(self, shares: Sequence[Share], budget: int, drafting: Drafting) -> Batch:
        """The step, its drafts' blocks reserved; `budget` is what it may still compute."""
        num_sampled = sum(share.is_sampled for share in shares)
        prompt_rows = count_prompt_rows(shares)
        per_request = min(
            self._config.speculative.num_speculative_tokens,
            max(0, self._config.max_num_draft_tokens - sum(prompt_rows)) // max(num_sampled, 1),
        )
        scheduled = []
        for request, num_tokens, is_sampled in shares:
            num_slots = 0
            if is_sampled and per_request > 0 and _may_draft(request, drafting):
                num_slots = self._reserve(request, min(per_request, budget))
                budget -= num_slots
            scheduled.append(
                ScheduledRequest(
                    request,
                    num_tokens,
                    num_slots,
                    is_sampled,
                    request.num_computed_tokens,
                    request.sampled_index if request.num_pending else -1,
                    request.stats.num_preemptions,
                    drafting is Drafting.GUESSES,
                    request.num_divergences,
                )
            )
        if num_prompt_rows := sum(prompt_rows):
            scheduled = [
                one._replace(num_prompt_rows=num_rows)
                for one, num_rows in zip(scheduled, prompt_rows, strict=True)
            ]
        return Batch(scheduled, num_prompt_rows)

    def _reserve(self, request: Request, limit: int) -> int:
        """Blocks for drafts, as many as fit; +1: the token that follows them needs no slot yet."""
        num_known = request.num_known_tokens
        num_slots = min(
            limit,
            request.max_tokens - (num_known - request.num_prompt_tokens) - 1,
            self._max_model_len - num_known - 1,
            self._block_manager.num_available_tokens(request) - num_known,
        )
        if num_slots <= 0:
            return 0
        is_allocated = self._block_manager.allocate(request, num_known + num_slots)
        assert is_allocated
        return num_slots


def _may_draft(request: Request, drafting: Drafting) -> bool:
    """Without guesses, or with its last token unknown, only a grammar can say what follows."""
    if drafting is Drafting.NOTHING or not request.params.speculative:
        return False
    if request.is_grammar_pending:
        return False
    may_guess = drafting is Drafting.GUESSES and not request.num_pending
    return may_guess or request.matcher is not None
