"""Drafts for vLLM's requests: each has one of structspec's beside it, which the drafter reads."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from structspec.drafters.faults import FaultTolerantDrafter
from structspec.drafters.registry import make_drafter
from structspec.engine.batch import Batch, ScheduledRequest
from structspec.grammars.base import Matcher
from structspec.request import Request, RequestStatus, SamplingParams
from structspec.speculative_config import SpeculativeConfig
from structspec.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Wanted:
    """One request that may be drafted for: its tokens so far, and where its grammar stands."""

    key: Hashable  # the same from step to step, and no other request's
    token_ids: Sequence[int]
    num_prompt_tokens: int
    max_num_drafted: int
    matcher: Matcher | None = None


class Drafts:
    """structspec's hybrid drafter over requests that another engine runs; used by one thread.

    Forced text comes first where there is a matcher, and every draft is steered by it.
    """

    def __init__(self, vocabulary: Vocabulary, num_speculative_tokens: int) -> None:
        config = SpeculativeConfig(num_speculative_tokens=num_speculative_tokens)
        self._num_speculative_tokens = num_speculative_tokens
        self._drafter = FaultTolerantDrafter(make_drafter(vocabulary, config))
        self._known: dict[Hashable, Request] = {}
        self._numbers = itertools.count()

    def propose(self, wanted: Sequence[Wanted]) -> list[list[int]]:
        """A draft for each, in order; matchers are left where they were."""
        scheduled = []
        for one in wanted:
            request = self._request_of(one)
            num_slots = min(one.max_num_drafted, self._num_speculative_tokens)
            position = len(request.token_ids) - 1
            scheduled.append(ScheduledRequest(request, 1, max(0, num_slots), True, position))
        return [list(token_ids) for token_ids in self._drafter.propose(Batch(scheduled)).token_ids]

    def keep_only(self, keys: Iterable[Hashable]) -> None:
        """All others have finished; what they wrote is remembered."""
        for key in self._known.keys() - set(keys):
            self._known.pop(key).status = RequestStatus.FINISHED

    def rename(self, names: Mapping[Hashable, Hashable]) -> None:
        """Have some go by other keys from now on, all of them at once."""
        renamed = {names.get(key, key): request for key, request in self._known.items()}
        self._known = renamed

    def _request_of(self, one: Wanted) -> Request:
        request = self._known.get(one.key)
        num_known = 0 if request is None else len(request.token_ids)
        if request is None or num_known > len(one.token_ids):
            prompt = list(one.token_ids[: one.num_prompt_tokens])
            request = Request(next(self._numbers), prompt, SamplingParams(), max_tokens=2**31)
            self._known[one.key] = request
            num_known = len(prompt)
        request.token_ids.extend(one.token_ids[num_known:])
        request.matcher = one.matcher
        return request
