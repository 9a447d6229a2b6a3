"""Tokens per target step and speed beside plain decoding, by drafter and kind of work.

python -m tests.bench.bench_drafters [--method hybrid --method forced] [--lines FILE]

Two engines are open at once, one that drafts nothing. Each task is written by both, one right after
the other, at temperature 0; both must write the same. The ratio of speeds is that of all seconds of
a kind, prompts included. Nothing is remembered from task to task but in rows marked "again", where
the same kind of work is asked for once more, with other words.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from structspec import LLM, EngineConfig, SpeculativeConfig
from structspec.request import Request
from structspec.speculative_config import Method
from tests.bench.drafting_tasks import tasks_by_kind
from tests.bench.timing import print_table
from tests.real_requests import Pair, run_alone

METHODS: tuple[Method, ...] = ("forced", "ngram", "suffix", "prediction", "hybrid")
COLUMNS = ("drafter", "work", "tokens", "steps", "tokens / step", "accepted", "speed / plain")


class Written(NamedTuple):
    """One task's request, and how long it took."""

    request: Request
    seconds: float


def open_engine(method: Method, num_tokens: int | None, *, remembers: bool = False) -> LLM:
    """An engine in which a prompt that comes again is as dear as the first time."""
    settings: dict[str, Any] = {"method": method}
    if method in ("suffix", "hybrid") and not remembers:
        settings["suffix_decoding_max_cached_requests"] = 0
    if num_tokens is not None and method != "none":
        settings["num_speculative_tokens"] = num_tokens
    config = EngineConfig(
        enable_prefix_caching=False, speculative=SpeculativeConfig.from_dict(settings)
    )
    return LLM("smollm2-135m", config=config)


def write(llm: LLM, pair: Pair) -> Written:
    """One task, alone."""
    start = time.perf_counter()
    [request] = run_alone(llm, [pair], temperature=0)
    return Written(request, time.perf_counter() - start)


def figure(
    method: str, kind: str, drafted: Sequence[Written], plain: Sequence[Written]
) -> dict[str, Any]:
    """What a drafter brought on one kind of work."""
    for one, other in zip(drafted, plain, strict=True):
        assert one.request.output_token_ids == other.request.output_token_ids
    stats = [one.request.stats for one in drafted]
    num_tokens = sum(one.request.num_output_tokens for one in drafted)
    num_steps = sum(one.num_target_steps for one in stats)
    seconds, plain_seconds = (sum(one.seconds for one in runs) for runs in (drafted, plain))
    return {
        "method": method,
        "work": kind,
        "tokens": num_tokens,
        "steps": num_steps,
        "tokens_per_step": num_tokens / num_steps,
        "drafted": sum(one.num_drafted for one in stats),
        "accepted": sum(one.num_accepted for one in stats),
        "forced_drafted": sum(one.num_forced_drafted for one in stats),
        "forced_accepted": sum(one.num_forced_accepted for one in stats),
        "seconds": seconds,
        "plain_seconds": plain_seconds,
    }


def measure(
    plain: LLM, method: Method, kinds: Sequence[str], num_tokens: int | None
) -> Iterator[dict[str, Any]]:
    """Each kind of work, and where something is remembered, its second half once the first was."""
    tasks = tasks_by_kind()
    with open_engine(method, num_tokens) as llm:
        write(llm, tasks["extraction"][0])  # warms up
        for kind in kinds:
            runs = [(write(llm, pair), write(plain, pair)) for pair in tasks[kind]]
            yield figure(method, kind, *zip(*runs, strict=True))
    if method in ("suffix", "hybrid"):
        with open_engine(method, num_tokens, remembers=True) as llm:
            for kind in kinds:
                pairs = tasks[kind]
                half = len(pairs) // 2
                run_alone(llm, pairs[:half], temperature=0)
                runs = [(write(llm, pair), write(plain, pair)) for pair in pairs[half:]]
                yield figure(method, f"{kind}, again", *zip(*runs, strict=True))


def row(found: dict[str, Any]) -> tuple[object, ...]:
    """Of the table."""
    num_drafted = found["drafted"]
    return (
        found["method"],
        found["work"],
        found["tokens"],
        found["steps"],
        f"{found['tokens_per_step']:.2f}",
        f"{found['accepted']} of {num_drafted}",
        f"{found['plain_seconds'] / found['seconds']:.2f}",
    )


def main() -> None:
    """Print the table; lines of JSON as they come."""
    parser = argparse.ArgumentParser(description=__doc__)
    kinds = list(tasks_by_kind())
    parser.add_argument("--method", action="append", choices=METHODS)
    parser.add_argument("--work", action="append", choices=kinds)
    parser.add_argument("--spec-tokens", type=int, help="of one request in one step")
    parser.add_argument("--lines", type=Path, help="append each figure as a line of JSON")
    options = parser.parse_args()
    rows = []
    with open_engine("none", None) as plain:
        write(plain, tasks_by_kind()["extraction"][0])  # warms up
        for method in options.method or METHODS:
            for found in measure(plain, method, options.work or kinds, options.spec_tokens):
                rows.append(row(found))
                print(json.dumps(found), flush=True)
                if options.lines is not None:
                    with options.lines.open("a", encoding="utf-8") as file:
                        print(json.dumps(found), file=file)
    print_table(COLUMNS, rows)


if __name__ == "__main__":
    main()
