"""Hand requests to an engine and wait for them: what all of its measurements share."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from structspec.bench.engine_workload import Job
from structspec.engine.loop import News
from structspec.options import GenerateOptions, resolve_options
from structspec.request import Request
from structspec.service import Prepared, Service

Figure = dict[str, Any]  # plain values that can be written as JSON


class Patience:
    """Says when a measurement has had its time; None: it has as long as it wants."""

    def __init__(self, seconds: float | None = None) -> None:
        self._end = float("inf") if seconds is None else time.perf_counter() + seconds

    @property
    def is_over(self) -> bool:
        """Whether nothing new should be begun."""
        return time.perf_counter() > self._end


@dataclass(frozen=True, slots=True)
class Finished:
    """Requests that were run together, and when; moments are seconds of `perf_counter`."""

    requests: Sequence[Request]
    asked_at: float  # before the first was checked, tokenised and its compiling begun
    started_at: float  # when the first was handed to the engine
    finished_at: Sequence[float]
    all_started_at: float = 0.0  # when the last was
    num_tokens_by_then: int = 0

    @property
    def steady_tokens_per_second(self) -> float:
        """While as many went as may go at once, which is until the last has started."""
        return self.num_tokens_by_then / (self.all_started_at - self.started_at)


def run_jobs(service: Service, jobs: Sequence[Job], *, is_speculative: bool = False) -> Finished:
    """Hand over all at once and wait for the last."""
    asked_at = time.perf_counter()
    prepared = [prepare(service, job, is_speculative=is_speculative) for job in jobs]
    return run_prepared(service, prepared, asked_at)


def prepare(service: Service, job: Job, *, is_speculative: bool = False) -> Prepared:
    """What a call of `generate` does before its request starts."""
    prompt, options = job
    given = cast(GenerateOptions, {**options, "speculative": is_speculative})
    return service.prepare(prompt, resolve_options(given))


def run_steadily(
    service: Service, jobs: Sequence[Job], num_at_once: int, *, is_speculative: bool = False
) -> Finished:
    """Keep so many going until all have begun, and wait for the last; there must be more jobs."""
    if len(jobs) <= num_at_once:
        raise ValueError(f"{len(jobs)} jobs do not keep {num_at_once} going")
    prepared = [prepare(service, job, is_speculative=is_speculative) for job in jobs]
    return run_prepared(service, prepared, num_at_once=num_at_once)


def run_prepared(
    service: Service,
    prepared: Sequence[Prepared],
    asked_at: float | None = None,
    *,
    num_at_once: int | None = None,
) -> Finished:
    """Start all, or as many as may go at once and another for each that ends; wait for the last."""
    finished_at: dict[int, float] = {}
    all_done = threading.Event()
    waiting = deque(prepared)
    by_then = 0.0, 0

    def start_next() -> None:
        nonlocal by_then
        service.start(waiting.popleft(), listen)
        if not waiting:
            num_tokens = sum(one.request.num_output_tokens for one in prepared)
            by_then = time.perf_counter(), num_tokens

    def listen(news: News) -> None:  # called by the engine's thread alone
        if news.finished is not None:
            finished_at[news.finished.request_id] = time.perf_counter()
            if waiting:
                start_next()
            if len(finished_at) == len(prepared):
                all_done.set()

    started_at = time.perf_counter()
    num_at_once = len(prepared) if num_at_once is None else num_at_once
    for one in [waiting.popleft() for _ in range(min(num_at_once, len(waiting)))]:
        service.start(one, listen)
    all_done.wait()
    return Finished(
        [one.request for one in prepared],
        started_at if asked_at is None else asked_at,
        started_at,
        [finished_at[one.request.request_id] for one in prepared],
        *by_then,
    )


def with_random_prompt(
    service: Service, job: Job, num_tokens: int, seed: int, *, is_speculative: bool = False
) -> Prepared:
    """The job on a prompt of exactly so many random tokens."""
    prepared = prepare(service, job, is_speculative=is_speculative)
    random = np.random.default_rng((seed, num_tokens))
    token_ids = random.integers(service.vocabulary.vocab_size, size=num_tokens).tolist()
    request = prepared.request
    params = request.params
    assert params.max_tokens is not None
    again = Request(request.request_id, token_ids, params, params.max_tokens, request.compiled)
    return Prepared(again, prepared.task)
