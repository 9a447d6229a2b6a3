"""`structspec bench`: what it runs is loaded on demand: grammar libraries, models."""

from __future__ import annotations

import argparse
import json
import math
import os
from pathlib import Path

from structspec.cli.bench_engine import add_engine
from structspec.cli.bench_shared import check_positive, wide_console
from structspec.cli.bench_spec import add_spec
from structspec.cli.speculation import add_speculation, is_any_given, read_speculation

DESCRIPTION = """\
Walk every instance of DATA token by token through each backend's masks, in worker processes with
limits, and count each schema once: right, approximated (the report said so), under (an invalid
instance passes), over (a valid one does not), refused, crash.
"""
EXAMPLES = """\
examples:
  structspec bench grammars schemas.jsonl --sample 50
  structspec bench quality --tasks 20
  structspec bench engine tests/data/structured-workload.json --requests 1 8
  structspec bench spec tests/data/structured-workload.json --requests 1 --lengths 0 4
"""
GRAMMARS_EXAMPLES = """\
examples:
  structspec bench grammars schemas.jsonl --sample 50
  structspec bench grammars schemas.jsonl.gz --backend router --vocab smollm2 --json
  structspec bench grammars schemas.jsonl --only Github_easy---o12345 --failures wrong.jsonl
"""
QUALITY_EXAMPLES = """\
examples:
  structspec bench quality --tasks 20
  structspec bench quality --resume outputs.jsonl --wrong wrong.jsonl
"""
QUALITY_DESCRIPTION = """\
Have a model extract objects with known answers from generated texts, with the default options and
with others, and compare, task by task: fields that are right, how likely the model finds what it
wrote, tokens and time.
"""


def add_bench(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `bench` and what it measures."""
    parser = commands.add_parser(
        "bench",
        help="measure constraints, what they cost in quality, or the engine's speed",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parts = parser.add_subparsers(required=True, metavar="part")
    _add_grammars(parts)
    _add_quality(parts)
    add_engine(parts)
    add_spec(parts)


def _add_grammars(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = parts.add_parser(
        "grammars",
        help="correctness and speed of constraints, beside the bare libraries",
        description=DESCRIPTION,
        epilog=GRAMMARS_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run_bench_grammars)
    parser.add_argument(
        "data",
        type=Path,
        metavar="DATA",
        help='a .jsonl or .jsonl.gz file; a line is {"id": "…", "schema": {…}, "tests":'
        ' [{"data": …, "valid": true}, …]}',
    )
    parser.add_argument(
        "--backend",
        action="append",
        metavar="NAME",
        help="router, llguidance, xgrammar, outlines or lm-format-enforcer; give it several times"
        " (default: the first three)",
    )
    parser.add_argument(
        "--vocab",
        default="bytes",
        help="bytes, smollm2 or the path of a tokenizer (default: %(default)s)",
    )
    parser.add_argument("--sample", type=int, metavar="N", help="only N of the schemas")
    parser.add_argument("--only", action="append", metavar="ID", help="only this schema")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    parser.add_argument(
        "--failures", type=Path, metavar="FILE", help="write what is not right, as JSON lines"
    )
    parser.add_argument("--workers", type=int, metavar="N", default=os.cpu_count() or 1)
    parser.add_argument(
        "--timeout", type=float, metavar="S", default=10.0, help="CPU seconds per compile or walk"
    )
    parser.add_argument("--memory", type=int, metavar="MB", default=4096, help="per worker")


def _add_quality(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = parts.add_parser(
        "quality",
        help="what a constraint and its options cost in right answers",
        description=QUALITY_DESCRIPTION,
        epilog=QUALITY_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run_bench_quality)
    parser.add_argument("--model", default="smollm2-135m", help="default: %(default)s")
    parser.add_argument("--tasks", type=int, metavar="N", default=200, help="default: %(default)s")
    parser.add_argument("--seed", type=int, metavar="N", default=0, help="of the tasks")
    parser.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        help="this configuration beside the default; give it several times (default: all)",
    )
    parser.add_argument(
        "--resume", type=Path, metavar="FILE", help="keep outputs here, and reuse those it holds"
    )
    parser.add_argument(
        "--wrong", type=Path, metavar="FILE", help="write what is not right, as JSON lines"
    )
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    add_speculation(parser)


def run_bench_grammars(options: argparse.Namespace) -> int:
    """Score and print; errors are raised."""
    from structspec.bench.cases import read_cases
    from structspec.bench.columns import DEFAULT_COLUMNS, check_columns
    from structspec.bench.failures import write_failures
    from structspec.bench.grammars import run_columns
    from structspec.bench.limits import Limits
    from structspec.bench.score import as_json
    from structspec.bench.tables import score_tables
    from structspec.bench.vocabularies import load_vocabulary
    from structspec.errors import InvalidRequest

    _check_numbers(options)
    columns = tuple(dict.fromkeys(options.backend or DEFAULT_COLUMNS))
    check_columns(columns)
    load_vocabulary(options.vocab)  # a mistake shows before any worker starts
    cases = read_cases(options.data, options.sample)
    if options.only:
        cases = [case for case in cases if case.id in options.only]
    if not cases:
        raise InvalidRequest("no schema is left to score")
    limits = Limits(cpu_s=options.timeout, memory_mb=options.memory)
    results = run_columns(cases, columns, options.vocab, limits, options.workers)
    if options.failures is not None:
        write_failures(options.failures, results)
    if options.json:
        print(json.dumps(as_json(results), indent=2))
    else:
        console = wide_console()
        for table in score_tables(results):
            console.print(table)
    return 0


def _check_numbers(options: argparse.Namespace) -> None:
    """Raise InvalidRequest for a number that nothing can be done with."""
    from structspec.errors import InvalidRequest

    for name in ("workers", "memory", "sample"):
        check_positive(name, getattr(options, name))
    if not 0 < options.timeout < math.inf:
        raise InvalidRequest(f"--timeout must be above 0 and finite, not {options.timeout}")


def run_bench_quality(options: argparse.Namespace) -> int:
    """Generate, grade and print; errors are raised."""
    from structspec.bench.quality import run_quality
    from structspec.bench.quality_configurations import choose_configurations
    from structspec.bench.quality_outputs import OutputFile
    from structspec.bench.quality_summary import summarize
    from structspec.bench.quality_tables import quality_table, write_wrong
    from structspec.bench.quality_tasks import make_tasks
    from structspec.errors import InvalidRequest

    configurations = choose_configurations(options.only)
    check_positive("tasks", options.tasks)
    if options.resume is not None and is_any_given(options):
        raise InvalidRequest("--resume keeps outputs of the default drafts: it takes no --spec-…")
    speculative = read_speculation(options)
    tasks, file = make_tasks(options.tasks, options.seed), OutputFile(options.resume)
    outputs = run_quality(options.model, tasks, configurations, file, speculative)
    if options.wrong is not None:
        write_wrong(options.wrong, tasks, outputs)
    summaries = summarize(tasks, outputs)
    if options.json:
        found = {name: summary.as_json() for name, summary in summaries.items()}
        print(json.dumps({"tasks": len(tasks), "configurations": found}, indent=2))
    else:
        wide_console().print(quality_table(summaries, len(tasks)))
    return 0
