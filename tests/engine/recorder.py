"""Drafters that are easy to foresee, and a record of what an engine asks of its parts."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from structspec.engine.batch import Batch, Draft, SamplerOutput, guessed
from tests.engine.toy import ToyEngine


class Plain:
    """Drafts nothing."""

    def propose(self, batch: Batch) -> Draft:
        return guessed([[] for _ in batch.requests])


class GuessFor:
    """Wrong or right guesses for one request, whenever it may have any."""

    def __init__(self, request_id: int) -> None:
        self._request_id = request_id

    def propose(self, batch: Batch) -> Draft:
        return guessed(
            [
                [0] * (each.num_draft_slots if each.may_guess else 0)
                if each.request.request_id == self._request_id
                else []
                for each in batch.requests
            ]
        )


@dataclass
class Recorder:
    """What an engine's parts are asked to do, in order, with the requests that it is for."""

    toy: ToyEngine

    def __post_init__(self) -> None:
        self.events: list[tuple[str, list[int]]] = []
        self.faults: dict[int, str] = {}  # of each step by its number, what fails
        self._num_steps = 0
        forward, sampler = self.toy.runner.forward, self.toy.engine._sampler
        steps: dict[int, int] = {}

        def recorded_forward(batch: Batch, draft: Draft, last: torch.Tensor | None) -> torch.Tensor:
            steps[id(batch)] = self._num_steps
            self._num_steps += 1
            self._note("forward", steps[id(batch)], batch)
            return forward(batch, draft, last)

        def recorded_sampler(logits: torch.Tensor, batch: Batch, *rest: object) -> Recorded:
            self._note("sample", steps[id(batch)], batch)
            return Recorded(self, steps[id(batch)], batch, sampler(logits, batch, *rest))

        self.toy.runner.forward = recorded_forward
        self.toy.engine._sampler = recorded_sampler

    def _note(self, what: str, step: int, batch: Batch) -> None:
        self.events.append((what, [each.request.request_id for each in batch.requests]))
        if self.faults.get(step) == what:
            raise RuntimeError(f"{what} of step {step}")

    def of(self, what: str) -> list[list[int]]:
        return [requests for kind, requests in self.events if kind == what]


@dataclass
class Recorded:
    """A step's output, which tells when it is read."""

    recorder: Recorder
    step: int
    batch: Batch
    sampled: object

    @property
    def last_token_ids(self) -> torch.Tensor:
        return self.sampled.last_token_ids

    def read(self) -> SamplerOutput:
        self.recorder._note("read", self.step, self.batch)
        return self.sampled.read()
