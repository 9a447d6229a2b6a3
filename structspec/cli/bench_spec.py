"""`structspec bench spec`: how much is guessed, and whether a fixed number would be faster."""

from __future__ import annotations

import argparse
import contextlib
import json
from pathlib import Path

from structspec.cli.bench_engine import add_what, read_config
from structspec.cli.bench_shared import check_positive, wide_console
from structspec.cli.speculation import add_speculation
from structspec.heap import kept_from_collector

DESCRIPTION = """\
Have a model write many outputs at once with as many drafts as the engine finds to pay, and with
fixed numbers of them, in alternating pairs: tokens per second, tokens drafted, and their ratio.
"""
EXAMPLES = """\
examples:
  structspec bench spec tests/data/structured-workload.json --requests 1 --lengths 0 4
  structspec bench spec tests/data/structured-workload.json --test copy --pairs 2 --json
"""
_TESTS = ("plain", "same", "copy")


def add_spec(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `bench spec`."""
    parser = parts.add_parser(
        "spec",
        help="the draft length chosen, beside fixed ones",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run_bench_spec)
    parser.add_argument(
        "data",
        type=Path,
        metavar="DATA",
        help="a workload, such as tests/data/structured-workload.json",
    )
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    parser.add_argument(
        "--lines", type=Path, metavar="FILE", help="append each figure as a line of JSON at once"
    )
    group = parser.add_argument_group("how much is run")
    group.add_argument(
        "--requests",
        type=int,
        nargs="+",
        metavar="N",
        default=[1, 8, 32, 128, 256],
        help="numbers of requests at once",
    )
    group.add_argument(
        "--lengths",
        type=int,
        nargs="+",
        metavar="K",
        default=[0, 1, 2, 4, 8, 15],
        help="fixed numbers of drafts of a request in a step",
    )
    group.add_argument(
        "--test",
        action="append",
        metavar="NAME",
        help=f"as of bench engine; give it several times (default: {', '.join(_TESTS)})",
    )
    group.add_argument(
        "--max-tokens", type=int, metavar="N", default=256, help="of an output: %(default)s"
    )
    group.add_argument("--pairs", type=int, metavar="N", default=6, help="default: %(default)s")
    group.add_argument(
        "--seconds", type=float, metavar="S", help="nothing new is begun after so long"
    )
    add_what(parser.add_argument_group("model and engine"))
    add_speculation(parser)


def run_bench_spec(options: argparse.Namespace) -> int:
    """Generate, time and print; errors are raised."""
    from structspec.bench.engine_parts import check_tests
    from structspec.bench.engine_runs import Figure, Patience
    from structspec.bench.engine_workload import read_workload
    from structspec.bench.spec import run_spec
    from structspec.bench.spec_tables import spec_table
    from structspec.service import Service

    for name in ("max_tokens", "pairs"):
        check_positive(name.replace("_", "-"), getattr(options, name))
    check_positive("requests", min(options.requests))
    check_positive("lengths", min(options.lengths) + 1)  # none is a number of drafts too
    tests = check_tests(options.test or _TESTS)
    workload = read_workload(options.data)
    config = read_config(options)
    figures: list[Figure] = []
    with contextlib.ExitStack() as stack:
        lines = None
        if options.lines is not None:
            lines = stack.enter_context(options.lines.open("a", encoding="utf-8"))
        service = Service(options.model, dtype=options.dtype, device=options.device, config=config)
        stack.callback(service.close)
        stack.enter_context(kept_from_collector())
        for figure in run_spec(
            service,
            workload,
            tests,
            options.requests,
            options.lengths,
            max_tokens=options.max_tokens,
            pairs=options.pairs,
            patience=Patience(options.seconds),
        ):
            figures.append(figure)
            if lines is not None:
                print(json.dumps(figure), file=lines, flush=True)
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        title = f"{options.model}, {options.dtype}, {options.device}, {options.max_tokens} tokens"
        wide_console().print(spec_table(figures, title))
    return 0
