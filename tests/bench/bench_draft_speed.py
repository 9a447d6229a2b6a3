"""Wall time with drafts against the same work without, by kind of work and number of requests.

python -m tests.bench.bench_draft_speed [--device cuda] [--requests 1 8 32 128] [--work copy]

Rounds are pairs, with and without drafts in turns; a first one warms up. All requests of a round
are handed in at once, prompts included. Nothing is remembered from round to round but the
beginnings of prompts, by both. On a CPU temperature 0 must give the same tokens either way.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from structspec import EngineConfig, SpeculativeConfig
from structspec.bench.engine_insides import engine_of
from structspec.bench.engine_runs import Patience, prepare, run_prepared
from structspec.bench.engine_stopwatch import HOST_PARTS, Stopwatch
from structspec.bench.intervals import median_interval
from structspec.service import Service
from tests.bench.drafting_tasks import tasks_by_kind
from tests.bench.timing import print_table
from tests.real_requests import Pair

COLUMNS = ("work", "requests", "without", "with", "ratio", "interval", "tokens / step", "alpha")
_DRAFTS, _PLAIN = True, False


class Round(NamedTuple):
    """One run of all requests."""

    num_tokens: int
    seconds: float
    num_steps: int  # of all requests, each step of each counted
    num_drafted: int
    num_accepted: int


def run(service: Service, pairs: Sequence[Pair], num_requests: int, has_drafts: bool) -> Round:
    """Hand in so many requests at once, the tasks in turn, and wait for the last."""
    jobs = [pairs[index % len(pairs)] for index in range(num_requests)]
    prepared = [
        prepare(service, (prompt, {**options, "temperature": 0.0}), is_speculative=has_drafts)
        for prompt, options in jobs
    ]
    finished = run_prepared(service, prepared)
    requests = finished.requests
    failed = [request.error for request in requests if request.error is not None]
    if failed:
        raise failed[0]
    return Round(
        sum(request.num_output_tokens for request in requests),
        max(finished.finished_at) - finished.started_at,
        sum(request.stats.num_target_steps for request in requests),
        sum(request.stats.num_drafted for request in requests),
        sum(request.stats.num_accepted for request in requests),
    )


def measure(
    service: Service, kind: str, pairs: Sequence[Pair], num_requests: int, num_pairs: int
) -> dict[str, Any]:
    """Both sides in turns, and the ratio of their speeds pair by pair."""
    rounds: dict[bool, list[Round]] = {_DRAFTS: [], _PLAIN: []}
    for index in range(num_pairs + 1):
        for has_drafts in (_DRAFTS, _PLAIN) if index % 2 else (_PLAIN, _DRAFTS):
            found = run(service, pairs, num_requests, has_drafts)
            if index > 0:
                rounds[has_drafts].append(found)
    speeds = {side: [one.num_tokens / one.seconds for one in rounds[side]] for side in rounds}
    ratios = [a / b for a, b in zip(speeds[_DRAFTS], speeds[_PLAIN], strict=True)]
    drafted = rounds[_DRAFTS]
    interval = median_interval(ratios)
    return {
        "part": "draft_speed",
        "work": kind,
        "requests": num_requests,
        "pairs": num_pairs,
        "without": statistics.median(speeds[_PLAIN]),
        "with": statistics.median(speeds[_DRAFTS]),
        "ratio": interval.median,
        "interval": [interval.low, interval.high],
        "tokens_per_step": sum(r.num_tokens for r in drafted) / sum(r.num_steps for r in drafted),
        "drafted_per_step": sum(r.num_drafted for r in drafted) / sum(r.num_steps for r in drafted),
        "acceptance": sum(r.num_accepted for r in drafted)
        / max(1, sum(r.num_drafted for r in drafted)),
    }


def parts_of(
    service: Service, device: torch.device, pairs: Sequence[Pair], num_requests: int
) -> dict[str, Any]:
    """Where the time of a step with drafts goes: milliseconds of host and device."""
    with Stopwatch(engine_of(service), device) as watch:
        run(service, pairs, num_requests, _DRAFTS)
    steps = [step for step in watch.steps if not step.has_prompts]
    if not steps:
        return {}
    gaps = [b.began - a.began for a, b in zip(watch.steps, watch.steps[1:], strict=False)]
    host = {part: 1e3 * statistics.mean(s.seconds[part] for s in steps) for part in HOST_PARTS}
    return {
        "steps": len(steps),
        "step_ms": 1e3 * statistics.median(gaps),
        "requests": statistics.mean(step.num_requests for step in steps),
        "drafts": statistics.mean(step.num_drafts for step in steps),
        **{part: round(ms, 3) for part, ms in host.items()},
        "forward": 1e3 * statistics.mean(step.device_s("forward") for step in steps),
    }


def row(found: dict[str, Any]) -> tuple[object, ...]:
    """Of the table."""
    low, high = found["interval"]
    return (
        found["work"],
        found["requests"],
        f"{found['without']:,.0f}",
        f"{found['with']:,.0f}",
        f"{found['ratio']:.2f}",
        f"{low:.2f} to {high:.2f}",
        f"{found['tokens_per_step']:.2f}",
        f"{found['acceptance']:.2f}",
    )


def main() -> None:
    """Print the table; lines of JSON as they come."""
    parser = argparse.ArgumentParser(description=__doc__)
    tasks = dict(tasks_by_kind())
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--work", action="append", choices=list(tasks))
    parser.add_argument("--requests", type=int, nargs="+", default=[1, 8, 32, 128])
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--max-tokens", type=int, help="of each request; default: the task's")
    parser.add_argument("--parts", action="store_true", help="where the time of a step goes")
    parser.add_argument("--seconds", type=float, help="begin nothing new after so long")
    parser.add_argument("--lines", type=Path, help="append each figure as a line of JSON")
    options = parser.parse_args()
    device = torch.device(options.device)
    if options.max_tokens is not None:
        limit = {"max_tokens": options.max_tokens}
        tasks = {
            kind: [(prompt, {**own, **limit}) for prompt, own in pairs]
            for kind, pairs in tasks.items()
        }
    speculative = SpeculativeConfig(method="hybrid", suffix_decoding_max_cached_requests=0)
    config = EngineConfig(speculative=speculative, max_model_len=2048)
    dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    patience, rows = Patience(options.seconds), []
    service = Service("smollm2-135m", dtype=dtype, device=options.device, config=config)
    try:
        for kind in options.work or ("copy", "tool calls"):
            for num_requests in options.requests:
                if patience.is_over:
                    break
                found = measure(service, kind, tasks[kind], num_requests, options.pairs)
                if options.parts:
                    found["parts"] = parts_of(service, device, tasks[kind], num_requests)
                rows.append(row(found))
                print(json.dumps(found), flush=True)
                if options.lines is not None:
                    with options.lines.open("a", encoding="utf-8") as file:
                        print(json.dumps(found), file=file)
    finally:
        service.close()
    print_table(COLUMNS, rows)


if __name__ == "__main__":
    main()
