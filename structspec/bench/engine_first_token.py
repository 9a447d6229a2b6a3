"""How long a caller waits for the first token, one request at a time, and what a schema adds.

    plain    no constraint
    first    a schema of the workload, met for the first time if no other part came before
    fresh    the same with a property that no schema before had: known but for that
    warm     the very same request again

A caller's wait begins before the schema is read. Prompts were computed before, as in a
conversation, so that what is left is the engine's own time and the compiler's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from structspec.bench.engine_runs import Figure, Patience, run_jobs
from structspec.bench.engine_workload import Job, Workload, make_jobs
from structspec.bench.intervals import median_interval, quantile
from structspec.service import Service


def run_first_token(
    service: Service, workload: Workload, *, pairs: int, patience: Patience
) -> Iterator[Figure]:
    """First what never-met schemas take, then `pairs` rounds of all of them."""
    num_schemas = len(workload.prompts)
    plain = make_jobs(workload, "plain", num_schemas, 1)
    for _ in range(2):  # computes the prompts, then warms up what follows a cached one
        for job in plain:
            _wait_ms(service, job)
    first = [_wait_ms(service, job) for job in make_jobs(workload, "pool", num_schemas, 1)]
    yield {"part": "first-token", "kind": "first", "ms": first}
    waits: dict[str, list[float]] = {"plain": [], "fresh": [], "warm": []}
    for _ in range(pairs):
        for free, fresh in zip(plain, make_jobs(workload, "fresh", num_schemas, 1), strict=True):
            for kind, job in (("plain", free), ("fresh", fresh), ("warm", fresh)):
                waits[kind].append(_wait_ms(service, job))
        if patience.is_over:
            break
    yield {"part": "first-token", "kind": "pairs", **_compare(waits)}


def _wait_ms(service: Service, job: Job) -> float:
    """From the call to the one token it asks for."""
    finished = run_jobs(service, [job])
    error = finished.requests[0].error
    if error is not None:
        raise error
    return (finished.finished_at[0] - finished.asked_at) * 1e3


def _compare(waits: Mapping[str, Sequence[float]]) -> Figure:
    added = [a - b for a, b in zip(waits["fresh"], waits["warm"], strict=True)]
    middle = median_interval(added)
    medians = {
        f"{kind}_ms": {"p50": quantile(values, 0.5), "p90": quantile(values, 0.9)}
        for kind, values in waits.items()
    }
    return {
        "pairs": len(added),
        **medians,
        "fresh_minus_warm_ms": {
            "p50": middle.median,
            "interval": [middle.low, middle.high],
            "p90": quantile(added, 0.9),
        },
    }
