"""The drafts' room in a step: how many tokens each request gets, and KV blocks for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from structspec.config import EngineConfig
from structspec.engine.batch import Batch, Draft, Drafting, ScheduledRequest
from structspec.engine.block_manager import BlockManager
from structspec.engine.draft_length import DraftLengths, TableLengths
from structspec.engine.memory import max_num_drafts, max_num_logits_rows
from structspec.engine.progress import Verified
from structspec.request import Request


class Share(NamedTuple):
    """What one request computes in a step, drafts aside."""

    request: Request
    num_tokens: int
    is_sampled: bool

    @staticmethod
    def of(request: Request, num_tokens: int) -> Share:
        """So many of its known tokens."""
        num_known = len(request.token_ids) + request.num_pending
        return Share(request, num_tokens, request.num_computed_tokens + num_tokens == num_known)


_KNOWING_FORCED = ("hybrid", "forced")  # which tell certain and forced tokens from other guesses


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
        self,
        config: EngineConfig,
        block_manager: BlockManager,
        max_model_len: int,
        lengths: DraftLengths | None = None,
    ) -> None:
        self._config = config
        self._block_manager = block_manager
        self._max_model_len = max_model_len
        self.lengths = lengths
        self._knows_forced = config.speculative.resolved_method in _KNOWING_FORCED
        self._landed_at: float | None = None  # when the last step was read, if it was just before

    def share_out(self, shares: Sequence[Share], budget: int, drafting: Drafting) -> Batch:
        """The step, its drafts' blocks reserved; `budget` is what it may still compute."""
        num_sampled = sum(share.is_sampled for share in shares)
        prompt_rows = count_prompt_rows(shares)
        # rows that fewer requests leave are for drafts too: they are there anyway
        num_rows = max_num_logits_rows(self._config) - num_sampled - sum(prompt_rows)
        most = min(max_num_drafts(self._config), max(0, num_rows) // max(num_sampled, 1))
        if drafting is Drafting.NOTHING:
            most = 0
        if not shares:
            self._landed_at = None
        guesses = self._choose(shares, most, drafting)
        has_more_slots, allows_guesses = self._has_more_slots, drafting is Drafting.GUESSES
        scheduled = []
        for (request, num_tokens, is_sampled), max_num_guesses in zip(shares, guesses, strict=True):
            num_slots = 0
            per_request = most if has_more_slots else max_num_guesses
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
                    allows_guesses,
                    request.num_divergences,
                    max_num_guesses,
                )
            )
        if num_prompt_rows := sum(prompt_rows):
            scheduled = [
                one._replace(num_prompt_rows=num_rows)
                for one, num_rows in zip(scheduled, prompt_rows, strict=True)
            ]
        return Batch(scheduled, num_prompt_rows)

    def verified(self, request: Request, verified: Verified) -> None:
        """Learn from what became of a request's guesses."""
        if self.lengths is not None and verified.num_tried:
            self.lengths.drafted(request, *verified)

    def landed(self, batch: Batch, draft: Draft, now: float) -> None:
        """Learn from a step that was read now, unless it has computed prompts."""
        last, self._landed_at = self._landed_at, now
        if self.lengths is None or last is None or not (draft.num_guessing or draft.num_hopeful):
            return
        num_tokens = batch.num_tokens
        if num_tokens <= len(batch.requests):
            num_drafted = sum(map(len, draft.token_ids))
            num_forced = sum(map(sum, draft.is_forced))
            num_found = num_drafted - num_forced
            self.lengths.landed(now - last, num_tokens + num_drafted, num_found, num_forced)

    @property
    def _has_more_slots(self) -> bool:
        """Whether there are slots for certain and forced tokens, however little is guessed."""
        return self._knows_forced and not isinstance(self.lengths, TableLengths)

    def _choose(self, shares: Sequence[Share], most: int, drafting: Drafting) -> Sequence[int]:
        """How many guesses each share may have."""
        if self.lengths is None or drafting is not Drafting.GUESSES or most <= 0:
            return [most] * len(shares)
        may_draft = [
            share.is_sampled
            and share.request.params.speculative
            and not share.request.is_grammar_pending
            for share in shares
        ]
        requests = [share.request for share, may in zip(shares, may_draft, strict=True) if may]
        chosen = iter(self.lengths.choose(requests, most))
        return [next(chosen) if may else 0 for may in may_draft]

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
    if not request.params.speculative or request.is_grammar_pending:
        return False
    may_guess = drafting is Drafting.GUESSES and not request.num_pending
    return may_guess or request.matcher is not None
