"""What one structured request costs the plain ones beside it.

    none     the plain ones alone
    plain    and one more of their kind: what any request costs
    same     and one held by a schema
    regex    and one held by a long regex

The four take turns, each round beginning with another, and ratios are taken within a round.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from structspec.bench.engine_runs import Figure, Finished, Patience, prepare, run_prepared
from structspec.bench.engine_workload import Workload, make_jobs
from structspec.bench.intervals import median_interval
from structspec.service import Service

ALONE = "none"
BESIDE = ("plain", "same", "regex")


def run_neighbours(
    service: Service,
    workload: Workload,
    *,
    num_plain: int,
    max_tokens: int,
    pairs: int,
    patience: Patience,
) -> Iterator[Figure]:
    """A figure for each kind of neighbour; a first round warms up."""
    kinds = (ALONE, *BESIDE)
    speeds: dict[str, list[float]] = {kind: [] for kind in kinds}
    for index in range(pairs + 1):
        if patience.is_over and speeds[ALONE]:
            break
        turn = index % len(kinds)
        for kind in (*kinds[turn:], *kinds[:turn]):
            speed = _run(service, workload, kind, num_plain, max_tokens)
            if index > 0:
                speeds[kind].append(speed)
    yield from (_compare(kind, num_plain, speeds) for kind in BESIDE)


def _run(service: Service, workload: Workload, kind: str, num_plain: int, max_tokens: int) -> float:
    """Tokens per second of the plain requests; the other one stands in their middle."""
    jobs = make_jobs(workload, "plain", num_plain, max_tokens)
    middle = num_plain // 2
    if kind != ALONE:
        jobs[middle:middle] = make_jobs(workload, kind, 1, max_tokens)
    finished = run_prepared(service, [prepare(service, job) for job in jobs])
    others = [index for index in range(len(jobs)) if kind == ALONE or index != middle]
    return _tokens_per_second(finished, others)


def _tokens_per_second(finished: Finished, indices: Sequence[int]) -> float:
    num_tokens = sum(finished.requests[index].num_output_tokens for index in indices)
    end = max(finished.finished_at[index] for index in indices)
    return num_tokens / (end - finished.started_at)


def _compare(kind: str, num_plain: int, speeds: Mapping[str, Sequence[float]]) -> Figure:
    alone, beside = speeds[ALONE], speeds[kind]
    ratio = median_interval([b / a for a, b in zip(alone, beside, strict=True)])
    return {
        "part": "neighbours",
        "beside": kind,
        "plain": num_plain,
        "pairs": len(alone),
        "ratio": ratio.median,
        "interval": [ratio.low, ratio.high],
        "confidence": ratio.confidence,
        "alone_tokens_per_second": statistics.median(alone),
        "beside_tokens_per_second": statistics.median(beside),
    }
