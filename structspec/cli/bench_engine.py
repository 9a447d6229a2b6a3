"""`structspec bench engine`: the engine is loaded once, and its parts are measured in turn."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from structspec.cli.bench_shared import check_positive, wide_console
from structspec.cli.speculation import add_speculation, is_any_given, read_unremembered
from structspec.errors import InvalidRequest

if TYPE_CHECKING:
    from structspec.bench.engine_parts import Settings
    from structspec.bench.engine_runs import Figure
    from structspec.config import EngineConfig

DESCRIPTION = """\
Have a model write many outputs at once, with and without constraints, and measure tokens per
second, the time between tokens and to the first, and what a constraint costs beside plain text.
"""
_BEFORE_OTHERS = "first-token"  # they compile schemas that it must be the first to meet
_PARTS = {
    "speed": "every test at every number of requests (the default)",
    "drafts": "plain, same and copy once more with drafts",
    "neighbours": "plain requests with and without a structured one beside them",
    "first-token": "what a caller waits for, by how well a schema is known",
    "prefill": "reading prompts, beside this device's matrix rate",
    "steps": "where a step's time goes, by requests, context and guesses",
}
EXAMPLES = f"""\
parts:
{chr(10).join(f"  {name:12} {text}" for name, text in _PARTS.items())}

examples:
  structspec bench engine tests/data/structured-workload.json --requests 1 8
  structspec bench engine tests/data/structured-workload.json --part steps --device cuda --json
"""


def add_engine(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `bench engine`."""
    parser = parts.add_parser(
        "engine",
        help="tokens per second by constraint and number of requests",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run_bench_engine)
    parser.add_argument(
        "data",
        type=Path,
        metavar="DATA",
        help="a workload, such as tests/data/structured-workload.json",
    )
    parser.add_argument(
        "--part", action="append", metavar="NAME", help="see below; give it several times"
    )
    parser.add_argument(
        "--part-seconds", type=float, metavar="S", help="a part begins nothing new after so long"
    )
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    parser.add_argument(
        "--lines", type=Path, metavar="FILE", help="append each figure as a line of JSON at once"
    )
    _add_how_much(parser.add_argument_group("how much is run"))
    add_what(parser.add_argument_group("model and engine"))
    add_speculation(parser)


def _add_how_much(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--requests",
        type=int,
        nargs="+",
        metavar="N",
        default=[1, 8, 32, 128, 256],
        help="numbers of requests at once",
    )
    group.add_argument(
        "--test",
        action="append",
        metavar="NAME",
        help="plain, same, pool, fresh, regex or copy; give it several times (default: all)",
    )
    group.add_argument(
        "--max-tokens", type=int, metavar="N", default=256, help="of an output: %(default)s"
    )
    group.add_argument(
        "--rounds", type=int, metavar="N", default=3, help="after a first to warm up"
    )
    group.add_argument(
        "--pairs", type=int, metavar="N", default=12, help="of neighbours and first-token"
    )
    group.add_argument("--neighbours", type=int, metavar="N", default=127, help="plain ones")
    group.add_argument(
        "--prompts",
        type=int,
        nargs=2,
        metavar=("N", "LENGTH"),
        default=[8, 4096],
        help="of prefill",
    )
    group.add_argument(
        "--contexts",
        type=int,
        nargs="+",
        metavar="N",
        default=[256, 2048, 8192, 32768],
        help="tokens before what is written, of steps",
    )
    group.add_argument(
        "--guesses",
        type=int,
        nargs="+",
        metavar="N",
        default=[0, 1, 3, 4, 7, 15],
        help="of a request, of steps",
    )
    group.add_argument("--unbounded", action="store_true", help="strings without maxLength")


def add_what(group: argparse._ArgumentGroup) -> None:
    """Add the options of a measurement's model and engine."""
    group.add_argument("--model", default="smollm2-135m", help="default: %(default)s")
    group.add_argument("--device", default="auto", help="default: a GPU if there is one")
    group.add_argument(
        "--dtype",
        choices=("auto", "float32", "bfloat16", "float16"),
        default="auto",
        help="of weights; default: bfloat16 on a GPU, else float32",
    )
    group.add_argument(
        "--load-format", choices=("auto", "dummy"), default="auto", help="dummy: random weights"
    )
    group.add_argument("--max-model-len", type=int, metavar="N", help="the longest context")
    group.add_argument("--max-num-batched-tokens", type=int, metavar="N", help="of a step")
    group.add_argument("--max-num-draft-tokens", type=int, metavar="N", help="of a step")
    group.add_argument(
        "--gpu-memory-utilization",
        type=float,
        metavar="SHARE",
        default=0.9,
        help="what the engine may take: %(default)s",
    )
    group.add_argument(
        "--batch-invariant", action="store_true", help="the same bits in any batch; slower"
    )
    group.add_argument("--enforce-eager", action="store_true", help="without CUDA graphs")
    group.add_argument("--no-async", action="store_true", help="read a step before the next")
    group.add_argument("--masks-first", action="store_true", help="never draw without a mask")


def run_bench_engine(options: argparse.Namespace) -> int:
    """Generate, time and print; 1 if a part failed. Other errors are raised."""
    from structspec.bench.engine_parts import run_parts
    from structspec.bench.engine_tables import engine_tables
    from structspec.bench.engine_workload import read_workload

    parts = _choose_parts(options.part)
    if is_any_given(options) and "drafts" not in parts:
        raise InvalidRequest("how to draft matters to the part drafts alone: add --part drafts")
    settings, config = _settings(options), read_config(options)
    workload = read_workload(options.data, is_bounded=not options.unbounded)
    figures: list[Figure] = []
    with contextlib.ExitStack() as stack:
        lines = None
        if options.lines is not None:
            lines = stack.enter_context(options.lines.open("a", encoding="utf-8"))
        for figure in run_parts(
            options.model,
            options.dtype,
            options.device,
            config,
            workload,
            parts,
            settings,
        ):
            figures.append(figure)
            if lines is not None:
                print(json.dumps(figure), file=lines, flush=True)
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        title = f"{options.model}, {options.dtype}, {options.device}, {options.max_tokens} tokens"
        for table in engine_tables(figures, title):
            wide_console().print(table)
    for figure in figures:
        if figure["part"] == "cut":
            told = f"{figure['name']} took longer than --part-seconds; what is missing was left out"
            print(f"structspec: {told}", file=sys.stderr)
    failed = [figure for figure in figures if figure["part"] == "failed"]
    for figure in failed:
        print(f"structspec: {figure['name']} failed: {figure['error']}", file=sys.stderr)
    return 1 if failed else 0


def _choose_parts(names: list[str] | None) -> list[str]:
    for name in names or ():
        if name not in _PARTS:
            raise InvalidRequest(f"there is no part {name!r}; known are {', '.join(_PARTS)}")
    chosen = dict.fromkeys(names or ["speed"])
    return sorted(chosen, key=lambda name: name != _BEFORE_OTHERS)


def _settings(options: argparse.Namespace) -> Settings:
    from structspec.bench.engine_parts import Settings, check_tests

    counts = {
        "requests": min(options.requests),
        "max-tokens": options.max_tokens,
        "rounds": options.rounds,
        "pairs": options.pairs,
        "neighbours": options.neighbours,
        "prompts": min(options.prompts),
        "contexts": min(options.contexts),
        "guesses": min(options.guesses) + 1,  # none is a number of guesses too
        "max-num-batched-tokens": options.max_num_batched_tokens,
    }
    for name, count in counts.items():
        check_positive(name, count)
    return Settings(
        tests=check_tests(options.test),
        sizes=options.requests,
        max_tokens=options.max_tokens,
        rounds=options.rounds,
        pairs=options.pairs,
        num_plain=options.neighbours,
        num_prompts=options.prompts[0],
        prompt_len=options.prompts[1],
        contexts=options.contexts,
        guesses=options.guesses,
        part_seconds=options.part_seconds,
    )


def read_config(options: argparse.Namespace) -> EngineConfig:
    """The engine that the options ask for."""
    from structspec.config import AUTO, EngineConfig

    def given(name: str) -> int:
        value = getattr(options, name)
        return AUTO if value is None else int(value)

    return EngineConfig(
        load_format=options.load_format,
        max_num_requests=max(64, *options.requests),
        max_model_len=options.max_model_len,
        max_num_batched_tokens=given("max_num_batched_tokens"),
        max_num_draft_tokens=given("max_num_draft_tokens"),
        gpu_memory_utilization=options.gpu_memory_utilization,
        batch_invariant=options.batch_invariant,
        enforce_eager=options.enforce_eager,
        async_scheduling=not options.no_async,
        optimistic_sampling=not options.masks_first,
        # what one round wrote must not be drafted in the next, which asks the same
        speculative=read_unremembered(options),
    )
