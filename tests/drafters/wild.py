"""A drafter that keeps to nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from structspec.config import SpeculativeConfig
from structspec.engine.batch import Batch, DraftSource, guessed
from structspec.vocabulary import Vocabulary
from tests.engine.toy import VOCABULARY

VOCAB_SIZE = VOCABULARY.vocab_size


class Wild:
    """Any draft, or none at all; matchers anywhere."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def propose(self, batch: Batch) -> object:
        for scheduled in batch.requests:
            if scheduled.request.matcher is not None and self._random.random() < 0.5:
                for _ in range(self._random.randint(0, 3)):
                    scheduled.request.matcher.accept(self._random.randint(0, 4))
        draft = guessed([self._tokens() for _ in batch.requests])
        if self._random.random() < 0.5:
            num_certain = [self._random.randint(0, len(ids)) for ids in draft.token_ids]
            draft = replace(draft, num_certain=num_certain)
        wild: list[Callable[[], object]] = [
            lambda: None,
            lambda: 1 // 0,
            lambda: draft.token_ids,
            lambda: replace(draft, token_ids=draft.token_ids[1:]),
            lambda: replace(draft, token_ids=[["a", 1.5, None]] * len(batch.requests)),
            lambda: replace(draft, token_ids=None),
            lambda: replace(draft, num_certain=[99] * len(batch.requests)),
            lambda: replace(draft, is_forced=[[]] * len(batch.requests)),
            lambda: replace(draft, sources=[[DraftSource("mine", 1)]] * len(batch.requests)),
            lambda: replace(draft, num_hopeful=self._random.randint(-9, 9)),
        ]
        return self._random.choice(wild)() if self._random.random() < 0.3 else draft

    def _tokens(self) -> list[int]:
        some = range(self._random.randint(0, 9))
        return [self._random.randint(-3, VOCAB_SIZE + 3) for _ in some]


class Anything(Wild):
    """As an engine makes it."""

    def __init__(self, vocabulary: Vocabulary, config: SpeculativeConfig) -> None:
        super().__init__(config.num_speculative_tokens)
