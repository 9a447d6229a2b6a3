"""A drafter of the user's own, held to what every drafter owes."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torch import Tensor

from structspec.drafters.base import Drafter, count_slots
from structspec.drafters.forced import take_certain
from structspec.drafters.plain_draft import check_distributions, plain_draft
from structspec.drafters.tracked import TrackedMatcher, left_in_place, put_back
from structspec.engine.batch import Batch, Draft, ScheduledRequest
from structspec.errors import InvalidRequest
from structspec.speculative_config import SpeculativeConfig
from structspec.vocabulary import Vocabulary

logger = logging.getLogger("structspec")


class CheckedDrafter:
    """Passes on what another drafts, as far as it may be computed.

    A token outside the vocabulary or the request's slots would be read and written where others'
    are, and one that is called certain is not verified. Tokens from the first on that may not be
    drafted are dropped, and matchers that were moved put back, with one warning; what is no draft
    of this batch raises TypeError or ValueError.
    """

    def __init__(self, inner: Drafter, name: str, vocabulary: Vocabulary) -> None:
        self._inner = inner
        self._name = name
        self._vocab_size = vocabulary.vocab_size
        self._stop_token_ids = frozenset(vocabulary.stop_token_ids)
        self._has_warned = False

    def propose(self, batch: Batch) -> Draft:
        """What the other proposes, cut where it has to be."""
        given, has_moved = self._propose_in_place(batch)
        with self._by_name():
            draft = plain_draft(given, len(batch.requests), self._vocab_size)
        kept = [
            self._count_kept(scheduled, token_ids, num_certain)
            for scheduled, token_ids, num_certain in zip(
                batch.requests, draft.token_ids, draft.num_certain, strict=True
            )
        ]
        if is_cut := kept != [*map(len, draft.token_ids)]:
            draft = _cut(draft, kept)
        if is_cut or has_moved:
            self._warn()
        with self._by_name():
            check_distributions(draft)
        return draft

    @contextmanager
    def _by_name(self) -> Iterator[None]:
        """Say of what is wrong with a draft who gave it."""
        try:
            yield
        except (TypeError, ValueError) as error:
            raise type(error)(f"the drafter {self._name!r} gave {error}") from None

    def _warn(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "the drafter %r does what it may not: see count_slots, may_guess and the size of"
                " the vocabulary; certain are only tokens that a grammar leaves no choice about,"
                " and matchers have to be left where they were. Such drafts are dropped",
                self._name,
            )

    def _propose_in_place(self, batch: Batch) -> tuple[object, bool]:
        """What the other gives, and whether it has left any matcher elsewhere."""
        lent: list[tuple[ScheduledRequest, TrackedMatcher]] = []
        for scheduled in batch.requests:
            if scheduled.request.matcher is not None:
                matcher = scheduled.request.matcher = TrackedMatcher(scheduled.request.matcher)
                lent.append((scheduled, matcher))
        has_moved = False
        try:
            draft: object = self._inner.propose(batch)
        finally:
            for scheduled, matcher in lent:
                has_moved |= matcher.num_moved != 0
                put_back(scheduled.request, matcher)
                scheduled.request.matcher = matcher.inner
        return draft, has_moved

    def _count_kept(
        self, scheduled: ScheduledRequest, token_ids: Sequence[int], num_certain: int
    ) -> int:
        limit = min(count_slots(scheduled), len(token_ids))
        if not scheduled.may_guess:
            limit = min(limit, num_certain)
        certain = self._certain(scheduled, min(limit, num_certain))
        for place in range(limit):
            if not 0 <= token_ids[place] < self._vocab_size:
                return place
            if place < num_certain and token_ids[place] != certain[place]:
                return place
        return limit

    def _certain(self, scheduled: ScheduledRequest, limit: int) -> list[int | None]:
        """So many tokens that are certain, None for those that no grammar leaves no choice of."""
        request, certain = scheduled.request, list[int]()
        if limit > 0 and request.matcher is not None:
            matcher = TrackedMatcher(request.matcher)
            with left_in_place(request, matcher):
                certain = take_certain(scheduled, matcher, limit, self._stop_token_ids)
        return [*certain, *[None] * (limit - len(certain))]


def _cut(draft: Draft, kept: list[int]) -> Draft:
    """So many tokens of each request."""
    num_certain = [min(pair) for pair in zip(draft.num_certain, kept, strict=True)]
    probs: list[Tensor | None] = [
        q[: count - certain] if q is not None and count > certain else None
        for q, count, certain in zip(draft.probs, kept, num_certain, strict=True)
    ]
    return replace(
        draft,
        token_ids=[ids[:count] for ids, count in zip(draft.token_ids, kept, strict=True)],
        probs=probs,
        is_forced=[flags[:count] for flags, count in zip(draft.is_forced, kept, strict=True)],
        num_certain=num_certain,
        sources=(),
    )


def make_custom(vocabulary: Vocabulary, config: SpeculativeConfig) -> Drafter:
    """One of the class that `config` names; raises InvalidRequest for a class that is none."""
    assert config.model is not None
    module_name, _, class_name = config.model.rpartition(".")
    try:
        kind: Any = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError) as error:
        raise InvalidRequest(f"there is no drafter {config.model!r}: {error}") from error
    if not callable(getattr(kind, "propose", None)):
        raise InvalidRequest(f"{config.model!r} is no drafter: it has no method propose(batch)")
    try:
        drafter: Drafter = kind(vocabulary, config)
    except TypeError as error:
        raise InvalidRequest(
            f"the drafter {config.model!r} could not be made of (vocabulary, config): {error}"
        ) from error
    return CheckedDrafter(drafter, config.model, vocabulary)
