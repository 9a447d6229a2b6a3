"""Prompt lookup: what followed the last tokens the last time they occurred."""

from __future__ import annotations

from collections.abc import Sequence

from structspec.drafters.base import Glimpse, count_slots, looked_up
from structspec.drafters.token_index import Ask, TokenIndex
from structspec.engine.batch import Batch, Draft
from structspec.request import Request
from structspec.speculative_config import SpeculativeConfig


class NgramDrafter:
    """Drafts by prompt lookup over prompt, output and what is already drafted.

    Each request is indexed until it is finished, also while it takes part in no step.
    """

    def __init__(self, config: SpeculativeConfig) -> None:
        self._shortest, self._longest = config.prompt_lookup_min, config.prompt_lookup_max
        self._index = TokenIndex()

    def propose(self, batch: Batch) -> Draft:
        """The n-gram continuation of each request, unaware of grammars; all in one call."""
        self.forget_finished()
        drafts: list[Sequence[int]] = [()] * len(batch.requests)
        places, asks = [], []
        for place, scheduled in enumerate(batch.requests):
            limit = count_slots(scheduled)
            if scheduled.may_guess and limit > 0:
                places.append(place)
                asks.append(self._ask(scheduled.request, (), limit, self._shortest))
        for place, draft in zip(places, self._index.draft(asks), strict=True):
            drafts[place] = draft
        return looked_up(drafts, batch)

    def continue_from(
        self, request: Request, draft: Sequence[int], limit: int, *, min_match: int = 1
    ) -> list[int]:
        """At most `limit` tokens that followed the like of the request's tokens and `draft`.

        A match of fewer than `min_match` tokens, or than the configured least, is none.
        """
        shortest = max(min_match, self._shortest)
        if limit <= 0 or shortest > self._longest:
            return []
        return self._index.draft([self._ask(request, draft, limit, shortest)])[0]

    def continue_all(
        self, places: Sequence[tuple[Request, Sequence[int], int]], *, min_match: int = 1
    ) -> list[list[int]]:
        """Like `continue_from` of many requests, their drafts and limits, in one call."""
        shortest = max(min_match, self._shortest)
        if shortest > self._longest:
            return [[] for _ in places]
        return self._index.draft([self._ask(*place, shortest) for place in places])

    def glimpse(self, requests: Sequence[Request], limit: int) -> list[Glimpse]:
        """What followed the longest match of each; all in one call."""
        self.forget_finished()
        asks = [self._ask(request, (), limit, self._shortest) for request in requests]
        return [
            Glimpse(("ngram", length), token_ids) for length, token_ids in self._index.matches(asks)
        ]

    def _ask(self, request: Request, draft: Sequence[int], limit: int, shortest: int) -> Ask:
        new = request.token_ids[self._index.num_known(request) :]
        return Ask(request, new, draft, limit, shortest, self._longest)

    def forget_finished(self) -> None:
        """Let go of requests that are finished; to be called in every step."""
        self._index.forget_finished()
