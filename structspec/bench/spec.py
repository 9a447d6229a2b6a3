"""The draft length that an engine chooses, beside fixed ones: runs in rounds, one after the other.

adaptive, k = 0, k = 1 | k = 1, k = 0, adaptive | …    each round's order is the other way

The figures of a round are compared with each other. In a run so many requests go at once, and
where one ends the next begins. The time counts in which all places are taken: those that have
nothing to guess end last, and alone they would be a figure of other numbers of requests.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from structspec.bench.engine_insides import engine_of
from structspec.bench.engine_runs import Figure, Patience, run_steadily
from structspec.bench.engine_workload import Job, Workload, make_jobs
from structspec.bench.intervals import median_interval
from structspec.engine.draft_length import TableLengths
from structspec.engine.pace import Pace
from structspec.service import Service

_FEWEST = 8  # requests in a run
_NUM_TIMES = 4  # as many as go at once
_MOST_MORE = 128  # than go at once


@dataclass(frozen=True, slots=True)
class SpecRun:
    """One run."""

    tokens_per_second: float
    tokens_per_step: float
    drafted_per_step: float  # of one request
    guessed_per_step: float  # of them, without those that a grammar forces


class FixedLengths:
    """Engines that guess as they are told; what they learnt of masks is kept for each length."""

    def __init__(self, service: Service) -> None:
        self._engine = engine_of(service)
        self._paces: dict[int, Pace] = {}

    @contextlib.contextmanager
    def within(self, length: int | None) -> Iterator[None]:
        """Draft always so much, None: what pays; to be entered while no request runs."""
        engine, slots = self._engine, self._engine.scheduler.draft_slots
        before = engine._pace, slots.lengths
        if length is not None:
            engine._pace = self._paces.setdefault(length, engine._pace.told())
            slots.lengths = TableLengths([(1, sys.maxsize, length)])
        try:
            yield
        finally:
            engine._pace, slots.lengths = before


def run_spec(
    service: Service,
    workload: Workload,
    tests: Sequence[str],
    sizes: Sequence[int],
    lengths: Sequence[int],
    *,
    max_tokens: int,
    pairs: int,
    patience: Patience,
) -> Iterator[Figure]:
    """A figure for each fixed length, number of requests and test; a first round warms up.

    What time is up for before it has a round is left out.
    """
    fixed = FixedLengths(service)

    def run(test: str, size: int, length: int | None) -> SpecRun:
        num_jobs = max(_FEWEST, min(_NUM_TIMES * size, size + _MOST_MORE))
        jobs = make_jobs(workload, test, num_jobs, max_tokens)
        with fixed.within(length):
            return _run(service, jobs, size)

    order = [None, *lengths]
    for size in sizes:
        for test in tests:
            rounds: list[dict[int | None, SpecRun]] = []
            for index in range(pairs + 1):
                if index and patience.is_over:
                    break
                order.reverse()
                rounds.append({length: run(test, size, length) for length in order})
            for length in lengths:
                both = [(one[None], one[length]) for one in rounds[1:]]
                if both:
                    yield _as_figure(test, size, length, both)


def _run(service: Service, jobs: Sequence[Job], size: int) -> SpecRun:
    finished = run_steadily(service, jobs, size, is_speculative=True)
    stats = [request.stats for request in finished.requests]
    num_tokens = sum(request.num_output_tokens for request in finished.requests)
    num_steps = max(1, sum(one.num_target_steps for one in stats))
    num_drafted = sum(one.num_drafted for one in stats)
    num_forced = sum(one.drafted_by_source.get("forced", 0) for one in stats)
    return SpecRun(
        finished.steady_tokens_per_second,
        num_tokens / num_steps,
        num_drafted / num_steps,
        (num_drafted - num_forced) / num_steps,
    )


def _as_figure(
    test: str, size: int, length: int, pairs: Sequence[tuple[SpecRun, SpecRun]]
) -> Figure:
    adaptive, fixed = zip(*pairs, strict=True)
    ratio = median_interval([a.tokens_per_second / b.tokens_per_second for a, b in pairs])
    return {
        "part": "spec",
        "test": test,
        "requests": size,
        "length": length,
        **{f"adaptive_{name}": _median(adaptive, name) for name in SpecRun.__slots__},
        **{f"fixed_{name}": _median(fixed, name) for name in SpecRun.__slots__},
        "ratio": ratio.median,
        "interval": [ratio.low, ratio.high],
        "confidence": ratio.confidence,
        "ratios": [a.tokens_per_second / b.tokens_per_second for a, b in pairs],
    }


def _median(runs: Sequence[SpecRun], name: str) -> float:
    return float(statistics.median(getattr(run, name) for run in runs))


def best_fixed(figures: Sequence[Figure]) -> list[Figure]:
    """Of each number of requests and test the figure of the fixed length with the most tokens/s."""
    best: dict[tuple[str, int], Figure] = {}
    for figure in figures:
        key = figure["test"], figure["requests"]
        if key not in best or figure["ratio"] < best[key]["ratio"]:
            best[key] = figure
    return list(best.values())
