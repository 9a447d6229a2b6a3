"""A drafter of the user's own, held to what every drafter owes."""

from __future__ import annotations

import importlib
import logging
from dataclasses import replace
from typing import Any

from torch import Tensor

from structspec.drafters.base import Drafter, count_slots
from structspec.engine.batch import Batch, Draft, ScheduledRequest
from structspec.errors import InvalidRequest
from structspec.speculative_config import SpeculativeConfig
from structspec.vocabulary import Vocabulary

logger = logging.getLogger("structspec")


class CheckedDrafter:
    """Passes on what another drafts, as far as it may be computed.

    A token outside the vocabulary or the request's slots would be read and written where others'
    are. Tokens from the first such on are dropped, with one warning; lists that do not fit the
    batch raise ValueError.
    """

    def __init__(self, inner: Drafter, name: str, vocab_size: int) -> None:
        self._inner = inner
        self._name = name
        self._vocab_size = vocab_size
        self._has_warned = False

    def propose(self, batch: Batch) -> Draft:
        """What the other proposes, cut where it has to be."""
        draft = self._inner.propose(batch)
        self._check(batch, draft)
        kept = [
            self._count_kept(scheduled, token_ids, num_certain)
            for scheduled, token_ids, num_certain in zip(
                batch.requests, draft.token_ids, draft.num_certain, strict=True
            )
        ]
        if kept == [*map(len, draft.token_ids)]:
            return draft
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "the drafter %r drafts what it may not: see count_slots, may_guess and the size of"
                " the vocabulary; such drafts are dropped",
                self._name,
            )
        return _cut(draft, kept)

    def _check(self, batch: Batch, draft: Draft) -> None:
        num_requests = len(batch.requests)
        for name in ("token_ids", "probs", "is_forced", "num_certain"):
            if len(getattr(draft, name)) != num_requests:
                raise ValueError(
                    f"the drafter {self._name!r} gave {len(getattr(draft, name))} {name} for"
                    f" {num_requests} requests"
                )
        for q, token_ids, num_certain in zip(
            draft.probs, draft.token_ids, draft.num_certain, strict=True
        ):
            shape = (len(token_ids) - num_certain, self._vocab_size)
            if q is not None and q.shape != shape:
                raise ValueError(
                    f"the drafter {self._name!r} gave probs of the shape {tuple(q.shape)}, and"
                    f" guesses need {shape}"
                )

    def _count_kept(self, scheduled: ScheduledRequest, token_ids: Any, num_certain: int) -> int:
        limit = min(count_slots(scheduled), len(token_ids))
        if not scheduled.may_guess:
            limit = min(limit, num_certain)
        for place in range(limit):
            if not 0 <= token_ids[place] < self._vocab_size:
                return place
        return limit


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
    return CheckedDrafter(drafter, config.model, vocabulary.vocab_size)
