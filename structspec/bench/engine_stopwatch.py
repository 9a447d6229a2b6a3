"""Timers around the parts of an engine's step, there only while they are wanted.

host parts, in the order in which a step that runs ahead takes them:
schedule   plan the next step
draft      propose its guesses, count what it computes
launch     pack its arrays, launch its forward pass
wait       until the step before it has sampled
matchers   moved over that one's tokens
masks      the rows that the new step is sampled with
sample     pack and launch the sampling
update     take in the tokens of the step before
other      between the parts, and what the engine's thread does between steps

device parts, on a GPU: forward and sample, each from its first kernel to its last
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from structspec.engine.batch import Batch, Draft, Sampled, SamplerOutput
from structspec.engine.engine import Engine
from structspec.request import Request

HOST_PARTS = ("schedule", "draft", "launch", "wait", "matchers", "masks", "sample", "update")
DEVICE_PARTS = ("forward", "sample")


@dataclass(slots=True)
class Step:
    """One call of `Engine.step`: the step it launched, and how long the parts took in seconds."""

    began: float
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(HOST_PARTS, 0.0))
    num_requests: int = 0
    num_drafts: int = 0
    has_prompts: bool = False  # more of any request was computed than its last token
    has_finished: bool = False
    spans: dict[str, tuple[Any, Any]] = field(default_factory=dict)  # CUDA events by device part

    def device_s(self, part: str) -> float:
        """Of one device part; only once the device has done it."""
        if part not in self.spans:
            return 0.0
        begin, end = self.spans[part]
        return float(begin.elapsed_time(end)) / 1e3


@dataclass(frozen=True, slots=True)
class _Timed:
    """A step's output, and what reading it takes."""

    sampled: Sampled
    timed_read: Callable[[], SamplerOutput]

    @property
    def last_token_ids(self) -> Tensor:
        return self.sampled.last_token_ids

    def read(self) -> SamplerOutput:
        return self.timed_read()


class Stopwatch:
    """Within it every step of an engine is timed; to be entered and left while no request runs.

    A step's timers cost some microseconds. Names are put over the methods of the engine's parts,
    and taken away again.
    """

    def __init__(self, engine: Engine, device: torch.device) -> None:
        self.steps: list[Step] = []
        self._engine = engine
        self._is_cuda = device.type == "cuda"
        self._covered: list[tuple[object, str, bool, object]] = []
        self._current = Step(0.0)

    def __enter__(self) -> Stopwatch:
        engine = self._engine
        scheduler, drafter, masker = engine.scheduler, engine._drafter, engine._masker
        runner: Any = engine._runner
        sampler: Any = engine._sampler
        for owner, name, part in (
            (drafter, "propose", "draft"),
            (runner, "forward", "launch"),
            (masker, "fill", "masks"),
            (masker, "advance", "matchers"),
            (scheduler, "update", "update"),
            (scheduler, "take_news", "update"),
        ):
            self._cover(owner, name, self._timed(part, getattr(owner, name)))
        self._cover(scheduler, "schedule", self._schedule(scheduler.schedule))
        self._cover(scheduler, "launched", self._launched(scheduler.launched))
        self._cover(engine, "_sampler", self._sampler(sampler))
        self._cover(engine, "step", self._step(engine.step))
        if self._is_cuda and hasattr(runner, "_body"):
            self._cover(runner, "_body", self._spanned("forward", runner._body))
            name = "_draw" if sampler._graphs is None else "_graphs"
            self._cover(sampler, name, self._spanned("sample", getattr(sampler, name)))
        return self

    def __exit__(self, *_: object) -> None:
        for owner, name, was_own, value in reversed(self._covered):
            if was_own:
                setattr(owner, name, value)
            else:
                delattr(owner, name)
        self._covered.clear()

    def _cover(self, owner: object, name: str, value: object) -> None:
        self._covered.append((owner, name, name in vars(owner), getattr(owner, name)))
        setattr(owner, name, value)

    def _timed(self, part: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **options: Any) -> Any:
            start = time.perf_counter()
            result = work(*args, **options)
            self._current.seconds[part] += time.perf_counter() - start
            return result

        return timed

    def _spanned(self, part: str, work: Callable[..., None]) -> Callable[..., None]:
        """Between two events on the stream that computes."""

        def spanned(*args: object, **options: object) -> None:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            begin.record()
            work(*args, **options)
            end.record()
            self._current.spans[part] = (begin, end)

        return spanned

    def _schedule(self, schedule: Callable[..., Batch]) -> Callable[..., Batch]:
        timed = self._timed("schedule", schedule)

        def scheduled(**options: Any) -> Batch:
            batch: Batch = timed(**options)
            self._current.num_requests = len(batch.requests)
            self._current.has_prompts = any(one.num_tokens > 1 for one in batch.requests)
            return batch

        return scheduled

    def _launched(self, launched: Callable[..., None]) -> Callable[..., None]:
        timed = self._timed("draft", launched)

        def counted(batch: Batch, draft: Draft) -> None:
            timed(batch, draft)
            self._current.num_drafts = sum(map(len, draft.token_ids))

        return counted

    def _sampler(self, sampler: Callable[..., Sampled]) -> Callable[..., Sampled]:
        timed = self._timed("sample", sampler)

        def sample(*args: Any) -> Sampled:
            sampled: Sampled = timed(*args)
            return _Timed(sampled, self._timed("wait", sampled.read))

        return sample

    def _step(self, step: Callable[[], list[Request]]) -> Callable[[], list[Request]]:
        def timed() -> list[Request]:
            current = self._current = Step(time.perf_counter())
            news = step()
            current.has_finished = any(request.is_finished for request in news)
            if current.num_requests:
                self.steps.append(current)
            return news

        return timed
