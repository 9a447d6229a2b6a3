"""The engine: one step is seven calls."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

import torch

from structspec.drafters.base import Drafter
from structspec.engine.batch import Batch, Draft, Mask, SamplerOutput
from structspec.engine.scheduler import Scheduler
from structspec.errors import EngineError
from structspec.request import Request

logger = logging.getLogger("structspec")


class Runner(Protocol):
    """Computes the target model's logits for a step."""

    def forward(self, batch: Batch, draft: Draft) -> torch.Tensor:
        """Logits [num_rows, vocab_size] float32: 1 + drafts rows for each sampled request."""


class Masker(Protocol):
    """Keeps the matchers in step with the tokens, and turns them into bitmask rows."""

    def fill(self, batch: Batch, draft: Draft) -> Mask:
        """The rows of all constrained requests; no matcher's state changes."""

    def advance(self, batch: Batch, output: SamplerOutput) -> None:
        """Move each matcher over its request's new tokens."""


Sampler = Callable[[torch.Tensor, Batch, Draft, Mask], SamplerOutput]


class Engine:
    """Generates tokens for many requests at once; used by one thread."""

    def __init__(
        self,
        scheduler: Scheduler,
        drafter: Drafter,
        runner: Runner,
        masker: Masker,
        sampler: Sampler,
    ) -> None:
        self.scheduler = scheduler
        self._drafter = drafter
        self._runner = runner
        self._masker = masker
        self._sampler = sampler

    def step(self) -> list[Request]:
        """Advance every schedulable request; returns those with news.

        An empty list means there is nothing to do now: no requests, or all wait for their grammar.
        A fault inside the step fails the requests that took part and leaves the others alone.
        """
        batch = self.scheduler.schedule()
        if not batch.requests:
            return self.scheduler.take_news()
        try:
            return self._run(batch)
        except Exception as error:
            logger.exception("an engine step failed; its %d requests end here", len(batch.requests))
            for scheduled in batch.requests:
                self.scheduler.fail(scheduled.request, EngineError(f"the engine failed: {error!r}"))
            return self.scheduler.take_news()

    def _run(self, batch: Batch) -> list[Request]:
        draft = self._drafter.propose(batch)
        logits = self._runner.forward(batch, draft)
        mask = self._masker.fill(batch, draft)
        output = self._sampler(logits, batch, draft, mask)
        self._masker.advance(batch, output)
        return self.scheduler.update(batch, draft, output)
