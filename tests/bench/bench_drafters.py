"""Tokens per target step by drafter and kind of work, and speed beside plain decoding.

python -m tests.bench.bench_drafters [--method hybrid] [--work copy] [--tasks 4] [--lines FILE]
python -m tests.bench.bench_drafters --device cuda --spec-tokens 15 1 2 4 8

Every task is written at temperature 0 by an engine that drafts nothing and by those whose method is
`--timed`, one right after the other; on a CPU all must write the same. Drafts change no token, so
the steps of a drafter are found by replaying that output. Nothing is remembered from task to task
but in the rows marked "again": of these the first half of a kind of work is not counted.

alpha      the share of looked-at drafts that held: accepted / (accepted + steps with a wrong one)
ideal      tokens a step if every step drafted k, each held with probability alpha:
           (1 - alpha^(k+1)) / (1 - alpha)   (Leviathan et al., 2023)

With more than one number of `--spec-tokens` the first is the engine's, and for the others `hybrid`
is replayed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from structspec import LLM, EngineConfig, SpeculativeConfig
from structspec.drafters.base import Drafter
from structspec.drafters.registry import make_drafter
from structspec.options import resolve_options
from structspec.request import Request, RequestStatus
from structspec.speculative_config import Method
from tests.bench.drafting_tasks import tasks_by_kind
from tests.bench.timing import print_table
from tests.drafters.replay import Step, replay
from tests.real_requests import Pair, run_alone

METHODS: tuple[Method, ...] = ("forced", "ngram", "suffix", "prediction", "hybrid")
REMEMBERING = ("suffix", "hybrid")
WORK_OF = {  # others have nothing to draft from
    "forced": ("extraction", "tool calls", "agent loop", "16 schemas", "copy"),
    "prediction": ("code edit",),
}
COLUMNS = (
    *("work", "drafter", "most", "tokens", "steps", "tokens / step"),
    *("accepted", "alpha", "ideal", "speed / plain"),
)
Figure = dict[str, Any]  # plain values that can be written as JSON


class Written(NamedTuple):
    """What an engine wrote, and how long it took."""

    token_ids: list[int]
    seconds: float


def settings_of(method: Method, num_tokens: int, *, remembers: bool = False) -> SpeculativeConfig:
    """A method's configuration."""
    settings: dict[str, Any] = {"method": method, "num_speculative_tokens": num_tokens}
    if method in REMEMBERING and not remembers:
        settings["suffix_decoding_max_cached_requests"] = 0
    return SpeculativeConfig.from_dict(settings)


def open_engine(speculative: SpeculativeConfig, device: str) -> LLM:
    """An engine in which a prompt that comes again is as dear as the first time; warmed up."""
    config = EngineConfig(enable_prefix_caching=False, speculative=speculative)
    dtype = "float32" if device == "cpu" else "bfloat16"
    llm = LLM("smollm2-135m", device=device, dtype=dtype, config=config)
    run_alone(llm, [("Hello", {})], max_tokens=4, temperature=0)
    return llm


def write(llm: LLM, pair: Pair) -> Written:
    """One task, alone."""
    start = time.perf_counter()
    [request] = run_alone(llm, [pair], temperature=0)
    return Written(request.output_token_ids, time.perf_counter() - start)


def fresh_request(llm: LLM, pair: Pair) -> Request:
    """A request that has written nothing, its matcher ready."""
    request = llm._service.prepare(pair[0], resolve_options(pair[1])).request
    if request.compiled is not None:
        request.start_matching(request.compiled.result())
    return request


def steps_to(
    llm: LLM, drafter: Drafter, pairs: Sequence[Pair], outputs: Sequence[list[int]], most: int
) -> list[list[Step]]:
    """The steps that a drafter would have taken to each of these outputs, one after the other."""
    steps = []
    for pair, token_ids in zip(pairs, outputs, strict=True):
        request = fresh_request(llm, pair)
        steps.append(replay(drafter, request, token_ids, most))
        request.status = RequestStatus.FINISHED
    return steps


def figure(
    kind: str, name: str, outputs: Sequence[list[int]], steps: Sequence[list[Step]], most: int
) -> Figure:
    """What a drafter brought on one kind of work."""
    flat = [step for task in steps for step in task]
    num_tokens = sum(map(len, outputs))
    num_accepted = sum(step.num_accepted for step in flat)
    num_refused = sum(step.num_accepted < len(step.token_ids) for step in flat)
    alpha = num_accepted / max(1, num_accepted + num_refused)
    return {
        "part": "drafters",
        "work": kind,
        "drafter": name,
        "most": most,
        "alpha": alpha,
        "ideal": sum(alpha**length for length in range(most + 1)),
        "tokens": num_tokens,
        "steps": len(flat),
        "tokens_per_step": num_tokens / len(flat),
        "tokens_per_step_by_task": [
            len(token_ids) / len(task) for token_ids, task in zip(outputs, steps, strict=True)
        ],
        "drafted": sum(len(step.token_ids) for step in flat),
        "accepted": num_accepted,
        "forced_drafted": sum(sum(step.is_forced) for step in flat),
        "forced_accepted": sum(sum(step.is_forced[: step.num_accepted]) for step in flat),
    }


def measure(
    engines: Mapping[str, LLM],
    kind: str,
    pairs: Sequence[Pair],
    methods: Sequence[Method],
    lengths: Sequence[int],
    *,
    is_exact: bool,
) -> list[Figure]:
    """What each drafter brings on one kind of work; the ratio of speeds is of all its seconds.

    With `is_exact` all engines must have written the same.
    """
    most, *others = lengths
    runs = [{name: write(llm, pair) for name, llm in engines.items()} for pair in pairs]
    outputs = [run["none"].token_ids for run in runs]
    plain = engines["none"]
    figures = []
    for method in methods:
        if kind not in WORK_OF.get(method, (kind,)):
            continue
        drafter = make_drafter(plain._service.vocabulary, settings_of(method, most))
        found = figure(kind, method, outputs, steps_to(plain, drafter, pairs, outputs, most), most)
        if method in engines:
            is_same = all(run[method].token_ids == run["none"].token_ids for run in runs)
            assert is_same or not is_exact
            seconds = {name: sum(run[name].seconds for run in runs) for name in ("none", method)}
            found["speed_ratio"] = seconds["none"] / seconds[method]
        figures.append(found)
        if method in REMEMBERING:
            config = settings_of(method, most, remembers=True)
            drafter = make_drafter(plain._service.vocabulary, config)
            steps, half = steps_to(plain, drafter, pairs, outputs, most), len(pairs) // 2
            figures.append(figure(kind, f"{method}, again", outputs[half:], steps[half:], most))
    for length in others:
        drafter = make_drafter(plain._service.vocabulary, settings_of("hybrid", length))
        steps = steps_to(plain, drafter, pairs, outputs, length)
        figures.append(figure(kind, "hybrid", outputs, steps, length))
    return figures


def row(found: Figure) -> tuple[object, ...]:
    """Of the table."""
    return (
        found["work"],
        found["drafter"],
        found["most"],
        found["tokens"],
        found["steps"],
        f"{found['tokens_per_step']:.2f}",
        f"{found['accepted']} of {found['drafted']}",
        f"{found['alpha']:.2f}",
        f"{found['ideal']:.2f}",
        f"{found['speed_ratio']:.2f}" if "speed_ratio" in found else "",
    )


def main() -> None:
    """Print the table; lines of JSON as they come."""
    parser = argparse.ArgumentParser(description=__doc__)
    tasks = tasks_by_kind()
    parser.add_argument("--method", action="append", choices=METHODS)
    parser.add_argument("--timed", action="append", choices=METHODS, help="default: hybrid")
    parser.add_argument("--work", action="append", choices=list(tasks))
    parser.add_argument("--tasks", type=int, help="of each kind; default: all")
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--spec-tokens", type=int, nargs="+", default=[15], help="of one request in one step"
    )
    parser.add_argument("--lines", type=Path, help="append each figure as a line of JSON")
    options = parser.parse_args()
    rows = []
    with ExitStack() as stack:
        none = SpeculativeConfig(method="none")
        engines = {"none": stack.enter_context(open_engine(none, options.device))}
        for method in options.timed or ["hybrid"]:
            config = settings_of(method, options.spec_tokens[0])
            engines[method] = stack.enter_context(open_engine(config, options.device))
        for kind in options.work or tasks:
            methods = options.method or METHODS
            pairs = tasks[kind][: options.tasks]
            is_exact, lengths = options.device == "cpu", options.spec_tokens
            for found in measure(engines, kind, pairs, methods, lengths, is_exact=is_exact):
                rows.append(row(found))
                print(json.dumps(found), flush=True)
                if options.lines is not None:
                    with options.lines.open("a", encoding="utf-8") as file:
                        print(json.dumps(found), file=file)
    print_table(COLUMNS, rows)


if __name__ == "__main__":
    main()
