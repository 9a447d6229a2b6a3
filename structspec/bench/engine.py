"""The engine's speed by test and number of requests at once; every cell is run several times.

The tests take turns at each number of requests, so that a ratio to `plain` is of runs that were
neighbours in time.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from structspec.bench.engine_workload import Job, Workload, make_jobs
from structspec.engine.loop import News
from structspec.options import GenerateOptions, resolve_options
from structspec.request import Request
from structspec.service import Prepared, Service

PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Run:
    """One run of all requests of a cell."""

    tokens_per_second: float  # of the whole run
    token_ms: float  # between tokens of one request, the median over requests
    first_token_ms: float  # from handing a request over to its first token, the median
    tokens_per_step: float
    num_failed: int


@dataclass(frozen=True, slots=True)
class Cell:
    """Medians over the runs of one test with so many requests at once."""

    test: str
    num_requests: int
    runs: Sequence[Run]

    def median(self, name: str) -> float:
        """Of one figure of a run."""
        return float(statistics.median(getattr(run, name) for run in self.runs))

    def ratio_to(self, other: Cell) -> float:
        """The median of the ratios of tokens per second, run by run."""
        pairs = zip(self.runs, other.runs, strict=True)
        return statistics.median(a.tokens_per_second / b.tokens_per_second for a, b in pairs)

    def as_json(self) -> dict[str, Any]:
        """The same as plain values."""
        names = ("tokens_per_second", "token_ms", "first_token_ms", "tokens_per_step")
        figures = {name: self.median(name) for name in names}
        spread = [run.tokens_per_second for run in self.runs]
        return {
            "test": self.test,
            "requests": self.num_requests,
            **figures,
            "tokens_per_second_of_runs": spread,
            "failed": sum(run.num_failed for run in self.runs),
        }


def run_engine(
    service: Service,
    workload: Workload,
    tests: Sequence[str],
    sizes: Sequence[int],
    *,
    max_tokens: int,
    rounds: int,
    is_speculative: bool,
) -> Iterator[Cell]:
    """The cells of each size, all of its tests together; a first round warms up.

    What a test may have compiled before is compiled in that round; `fresh` schemas never are.
    """
    for size in sizes:
        runs: dict[str, list[Run]] = {test: [] for test in tests}
        for index in range(rounds + 1):
            for test in tests:
                jobs = make_jobs(workload, test, size, max_tokens)
                run = run_once(service, jobs, is_speculative=is_speculative)
                if index > 0:
                    runs[test].append(run)
        for test in tests:
            yield Cell(test, size, runs[test])


def run_once(service: Service, jobs: Sequence[Job], *, is_speculative: bool = False) -> Run:
    """Hand over all requests at once and wait for the last."""
    drafting = {"speculative": is_speculative}
    start = time.perf_counter()
    prepared = [
        service.prepare(prompt, resolve_options(cast(GenerateOptions, {**options, **drafting})))
        for prompt, options in jobs
    ]
    finished_at = _run_to_end(service, prepared)
    requests = [one.request for one in prepared]
    num_tokens = sum(request.num_output_tokens for request in requests)
    num_steps = sum(request.stats.num_target_steps for request in requests)
    firsts = [_first_token_s(request) for request in requests]
    gaps = [
        (end - request.arrival_time - first) / max(1, request.num_output_tokens - 1)
        for request, end, first in zip(requests, finished_at, firsts, strict=True)
    ]
    return Run(
        tokens_per_second=num_tokens / (max(finished_at) - start),
        token_ms=statistics.median(gaps) * 1e3,
        first_token_ms=statistics.median(firsts) * 1e3,
        tokens_per_step=num_tokens / max(1, num_steps),
        num_failed=sum(request.error is not None for request in requests),
    )


def _first_token_s(request: Request) -> float:
    return request.stats.first_token_s or 0.0  # a request that failed has none


def _run_to_end(service: Service, prepared: Sequence[Prepared]) -> list[float]:
    """When each request finished."""
    finished_at: dict[int, float] = {}
    all_done = threading.Event()

    def listen(news: News) -> None:  # called by the engine's thread alone
        if news.finished is not None:
            finished_at[news.finished.request_id] = time.perf_counter()
            if len(finished_at) == len(prepared):
                all_done.set()

    for one in prepared:
        service.start(one, listen)
    all_done.wait()
    return [finished_at[one.request.request_id] for one in prepared]
