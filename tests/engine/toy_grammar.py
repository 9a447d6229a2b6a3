"""Grammars of a few texts for the toy engine, which know every token that there is no choice about.

texts cbba, cbca     certain: c b     then b or c     then a, and the stop token
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import ClassVar

from structspec.bitmask import allocate_bitmask
from structspec.drafters.base import count_slots
from structspec.drafters.forced import take_certain
from structspec.engine.batch import Batch, Draft, ScheduledRequest
from structspec.grammars.base import (
    Bitmask,
    FillJob,
    Look,
    Matcher,
    MatcherFailed,
    Move,
    Report,
    Row,
    Seen,
)
from structspec.grammars.drafts import (
    fill_job,
    look_each,
    take_allowed,
    take_each,
    take_first_allowed,
)
from tests.drafters.toy import TextsMatcher
from tests.engine.toy import VOCABULARY, hashed_logits


class CertainMatcher(TextsMatcher):
    """Names the end too: after it only stop tokens are left, so there is no end of them."""

    def forced_tokens(self, limit: int) -> list[int]:
        taken: list[int] = []
        while len(taken) < limit and len(allowed := self.allowed()) == 1:
            assert self.accept(allowed[0])
            taken += allowed
        self.rollback(len(taken))
        return taken

    def allowed(self) -> list[int]:
        return [t for t in range(self.vocabulary.vocab_size) if self.is_allowed(t)]


class ToyBackend:
    """Fills rows by the laws of Matcher alone."""

    def fill_drafts(self, jobs: Sequence[FillJob], bitmask: Bitmask) -> list[int]:
        return [fill_job(job, bitmask) for job in jobs]

    def take_shown(self, moves: Sequence[Move]) -> list[Exception | None]:
        return take_each(moves)

    def take_unseen(self, moves: Sequence[Move]) -> list[int | Exception]:
        return take_allowed(moves)

    def take_first(self, moves: Sequence[Move]) -> list[int | Exception]:
        return take_first_allowed(moves)

    def look_ahead(self, looks: Sequence[Look]) -> list[Seen | Exception]:
        return look_each(looks)


@dataclass(frozen=True)
class ToyGrammar:
    """A compiled grammar of whole texts."""

    texts: tuple[str, ...]
    matcher_class: type[CertainMatcher] = CertainMatcher
    backend: ClassVar = ToyBackend()
    report: ClassVar = Report("toy")
    compile_ms: ClassVar = 0.0
    wide_row: ClassVar = None

    @property
    def start_row(self) -> Row:
        bitmask = allocate_bitmask(1, VOCABULARY.vocab_size)
        TextsMatcher(VOCABULARY, [text.encode() for text in self.texts]).fill(bitmask, 0)
        return bitmask[0]

    def matcher(self) -> CertainMatcher:
        return self.matcher_class(VOCABULARY, [text.encode() for text in self.texts])


def ready(grammar: ToyGrammar) -> Future:
    """As the compiler hands it out."""
    future: Future = Future()
    future.set_result(grammar)
    return future


class RestlessDrafter:
    """Some of the certain tokens, then some guesses: junk, or what the toy model might write."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def propose(self, batch: Batch) -> Draft:
        drafts = [self._propose_one(scheduled) for scheduled in batch.requests]
        token_ids = [[*certain, *guesses] for certain, guesses in drafts]
        return Draft(
            token_ids,
            [None] * len(drafts),
            [[False] * len(ids) for ids in token_ids],
            [len(certain) for certain, _ in drafts],
        )

    def _propose_one(self, scheduled: ScheduledRequest) -> tuple[list[int], list[int]]:
        request, limit = scheduled.request, count_slots(scheduled)
        certain = self._certain(scheduled, request.matcher, limit)
        guesses: list[int] = []
        if scheduled.may_guess:
            for _ in range(self._random.randint(0, limit - len(certain))):
                logits = hashed_logits((*request.token_ids, *certain, *guesses))
                likely = logits.index(max(logits))
                guesses.append(self._random.choice([likely, self._random.randrange(5)]))
        return certain, guesses

    def _certain(
        self, scheduled: ScheduledRequest, matcher: Matcher | None, limit: int
    ) -> list[int]:
        if limit <= 0 or matcher is None:
            return []
        try:
            certain = take_certain(scheduled, matcher, limit, VOCABULARY.stop_token_ids)
            if scheduled.may_guess:
                matcher.rollback(len(certain))
        except MatcherFailed:
            return []
        return certain[: self._random.randint(0, len(certain))]
