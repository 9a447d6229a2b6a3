"""SuffixDecoding: what most often followed the last tokens, here and in finished responses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from structspec.drafters.base import Glimpse, count_slots, looked_up
from structspec.drafters.suffix_responses import ResponseMemory
from structspec.drafters.suffix_tree import NO_GUESS, SuffixSettings, SuffixTree
from structspec.engine.batch import Batch, Draft
from structspec.request import Request
from structspec.speculative_config import SpeculativeConfig

_NUM_PROMPT_TOKENS = 24  # kept before a response, so that the like of its prompt is known by it


@dataclass(slots=True)
class _Known:
    """A request that is not finished; its tree as soon as something was drafted."""

    request: Request
    tree: SuffixTree | None = None


class SuffixDrafter:
    """Drafts what most often followed the longest match, in the request or in what others wrote.

    Each request has a tree of its prompt and output; all share a memory of finished responses.
    Trees are kept until their request is finished, also while it takes part in no step.
    """

    def __init__(
        self,
        settings: SuffixSettings | None = None,
        *,
        max_cached_requests: int = 10_000,
        max_cached_bytes: int = 2**28,
    ) -> None:
        """Without `max_cached_requests` nothing is remembered of other requests."""
        self._settings = settings or SuffixSettings()
        self._known: dict[int, _Known] = {}
        self._last_requests: list[Request] = []
        self._memory: ResponseMemory | None = None
        if max_cached_requests:
            self._memory = ResponseMemory(self._settings, max_cached_requests, max_cached_bytes)
        self._compile()

    def propose(self, batch: Batch) -> Draft:
        """The likeliest continuation of each request, unaware of grammars."""
        self.observe(batch)
        self.read_prompts(batch)
        drafts = [
            self.continue_from(scheduled.request, (), count_slots(scheduled))
            if scheduled.may_guess
            else []
            for scheduled in batch.requests
        ]
        return looked_up(drafts, batch)

    def observe(self, batch: Batch) -> None:
        """Remember what finished requests wrote, and forget them; to be called in every step.

        Where a step has the requests of the one before, none of them is new or finished.
        """
        requests = [scheduled.request for scheduled in batch.requests]
        if requests == self._last_requests:
            return
        self._last_requests = requests
        for key in [key for key, known in self._known.items() if known.request.is_finished]:
            request = self._known.pop(key).request
            if self._memory is not None and request.num_output_tokens:
                start = max(0, request.num_prompt_tokens - _NUM_PROMPT_TOKENS)
                self._memory.add(request.token_ids[start:])
        for request in requests:
            if request.request_id not in self._known:
                self._known[request.request_id] = _Known(request)

    def read_prompts(self, batch: Batch) -> None:
        """Take in the parts of prompts that this step computes: else the first draft takes all."""
        for scheduled in batch.requests:
            request = scheduled.request
            if not scheduled.is_sampled and request.params.speculative:
                self._tree_of(request, scheduled.first_position + scheduled.num_tokens)

    def continue_from(
        self, request: Request, draft: Sequence[int], limit: int, *, min_match: int = 1
    ) -> list[int]:
        """At most `limit` tokens that likely follow the request's tokens and `draft`.

        A match of fewer than `min_match` tokens is none. Costs no more for a longer context; the
        tokens that came since the last call are taken in first.
        """
        if limit <= 0:
            return []
        tree = self._tree_of(request, len(request.token_ids))
        guess = tree.draft(draft, limit, min_match)
        shared = NO_GUESS
        if self._memory is not None:
            context = [*request.token_ids[-self._settings.max_order :], *draft]
            shared = self._memory.draft(context, limit, min_match)
        return shared.token_ids if shared.score > guess.score else guess.token_ids

    def continue_as_others(
        self, request: Request, draft: Sequence[int], limit: int, *, min_match: int = 1
    ) -> list[int]:
        """Like `continue_from`, from finished responses alone; takes nothing in."""
        if limit <= 0 or self._memory is None:
            return []
        context = [*request.token_ids[-self._settings.max_order :], *draft]
        return self._memory.draft(context, limit, min_match).token_ids

    def glimpse(self, requests: Sequence[Request], limit: int) -> list[Glimpse]:
        """The likeliest continuation of each."""
        return [
            Glimpse(("suffix", 0), self.continue_from(request, (), limit)) for request in requests
        ]

    def _tree_of(self, request: Request, num_tokens: int) -> SuffixTree:
        """The request's tree, which has at least its first `num_tokens` tokens."""
        known = self._known.setdefault(request.request_id, _Known(request))
        tree = known.tree
        if tree is None:
            tree = known.tree = SuffixTree(self._settings, len(request.token_ids))
        tree.extend(request.token_ids[tree.num_tokens : num_tokens])
        return tree

    def _compile(self) -> None:
        """So that no request waits for it; taken from disk from the second time on."""
        tree, memory = SuffixTree(self._settings), ResponseMemory(self._settings, 4, 2**16)
        tree.extend([0, 0])
        tree.draft([0], 1)
        memory.draft([0], 1)


def make_suffix(config: SpeculativeConfig) -> SuffixDrafter:
    """A suffix drafter with these settings, and nothing remembered yet."""
    settings = SuffixSettings(
        max_tree_depth=config.suffix_decoding_max_tree_depth,
        max_spec_factor=config.suffix_decoding_max_spec_factor,
        min_token_prob=config.suffix_decoding_min_token_prob,
    )
    return SuffixDrafter(
        settings,
        max_cached_requests=config.suffix_decoding_max_cached_requests,
        max_cached_bytes=config.suffix_decoding_max_cached_bytes,
    )
