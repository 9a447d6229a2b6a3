"""The engine's speed by test and number of requests at once; every cell is run several times.

The tests take turns at each number of requests, so that a ratio to `plain` is of runs that were
neighbours in time.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from structspec.bench.engine_runs import Figure, Finished, Patience, run_jobs
from structspec.bench.engine_workload import Workload, make_jobs
from structspec.service import Service

PLAIN = "plain"
_MEDIANS = ("tokens_per_second", "token_ms", "first_token_ms", "tokens_per_step")


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
    is_speculative: bool
    runs: Sequence[Run]

    def median(self, name: str) -> float:
        """Of one figure of a run."""
        return float(statistics.median(getattr(run, name) for run in self.runs))

    def ratio_to(self, other: Cell) -> float:
        """The median of the ratios of tokens per second, run by run."""
        pairs = zip(self.runs, other.runs, strict=True)
        return statistics.median(a.tokens_per_second / b.tokens_per_second for a, b in pairs)

    def as_figure(self, plain: Cell) -> Figure:
        """The same as plain values."""
        return {
            "part": "drafts" if self.is_speculative else "speed",
            "test": self.test,
            "requests": self.num_requests,
            **{name: self.median(name) for name in _MEDIANS},
            "ratio_to_plain": self.ratio_to(plain),
            "tokens_per_second_of_runs": [run.tokens_per_second for run in self.runs],
            "failed": sum(run.num_failed for run in self.runs),
        }


def run_speed(
    service: Service,
    workload: Workload,
    tests: Sequence[str],
    sizes: Sequence[int],
    *,
    max_tokens: int,
    rounds: int,
    is_speculative: bool,
    patience: Patience,
) -> Iterator[Figure]:
    """The cells of each size, all of its tests together; a first round warms up.

    What a test may have compiled before is compiled in that round; `fresh` schemas never are.
    A round that is begun is finished; cells without any are left out.
    """
    for size in sizes:
        runs: dict[str, list[Run]] = {test: [] for test in tests}
        for index in range(rounds + 1):
            if patience.is_over:
                break
            for test in tests:
                jobs = make_jobs(workload, test, size, max_tokens)
                run = run_once(run_jobs(service, jobs, is_speculative=is_speculative))
                if index > 0:
                    runs[test].append(run)
        cells = {test: Cell(test, size, is_speculative, runs[test]) for test in tests}
        if cells[PLAIN].runs:
            yield from (cell.as_figure(cells[PLAIN]) for cell in cells.values())


def run_once(finished: Finished) -> Run:
    """The figures of requests that were run together; preparing them is inside the time."""
    requests = finished.requests
    num_tokens = sum(request.num_output_tokens for request in requests)
    num_steps = sum(request.stats.num_target_steps for request in requests)
    firsts = [request.stats.first_token_s or 0.0 for request in requests]  # failed ones have none
    gaps = [
        (end - request.arrival_time - first) / max(1, request.num_output_tokens - 1)
        for request, end, first in zip(requests, finished.finished_at, firsts, strict=True)
    ]
    return Run(
        tokens_per_second=num_tokens / (max(finished.finished_at) - finished.asked_at),
        token_ms=statistics.median(gaps) * 1e3,
        first_token_ms=statistics.median(firsts) * 1e3,
        tokens_per_step=num_tokens / max(1, num_steps),
        num_failed=sum(request.error is not None for request in requests),
    )
