"""From a schema never seen before to its first mask, beside bare llguidance.

python -m tests.bench.bench_first_mask [DATA] [--vocab smollm2] [--vocab path/of/tokenizer.json]
python -m tests.bench.bench_first_mask --workload tests/data/structured-workload.json

With a workload the schemas are those of `structspec bench engine --part first-token`: known but
for one property. No model takes part.

call      what a caller waits for: options, checks, compiling in its thread, a matcher, one row
ours      compile (checks, rewriting, report, probe), a matcher, one row
bare      the library's own reading of the schema, a matcher, one row
compiler  the same as ours through `GrammarCompiler.submit`: a thread or a process, and its cache

"/ bare" is the median over schemas of each one's own ratio, with a 95 % bootstrap interval.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from structspec.bench.bare import BareLLGuidance
from structspec.bench.cases import Case, read_cases
from structspec.bench.columns import Refused, Router, Subject
from structspec.bench.engine_workload import make_jobs, read_workload
from structspec.bench.vocabularies import load_vocabulary
from structspec.bench.walk import Walker
from structspec.compiler import GrammarCompiler
from structspec.errors import GrammarError
from structspec.grammars.schema_reading import draft_of_text
from structspec.options import resolve_options
from structspec.policy import unless_unsupported
from structspec.vocabulary import Vocabulary
from tests.bench.timing import print_table

SAMPLE = Path(__file__).parents[1] / "data" / "jsonschemabench" / "sample.jsonl.gz"
PERCENTILES = (50, 90, 99)
NUM_ROUNDS = 12  # of a workload's schemas

FirstMatcher = Callable[[Case], Walker]


def through_subject(subject: Subject) -> FirstMatcher:
    """Compiled where it is asked for."""
    return lambda case: subject.compile(case).matcher()


def through_compiler(compiler: GrammarCompiler) -> FirstMatcher:
    """Compiled as an engine has it done."""
    return lambda case: compiler.submit(case.constraint()).result().matcher()


def through_call(compiler: GrammarCompiler) -> FirstMatcher:
    """From the call on, as `generate` has it."""

    def first_matcher(case: Case) -> Walker:
        if case.kind != "json_schema":
            raise Refused(f"schema= takes no {case.kind}")
        task = resolve_options({"schema": case.body, "schema_in_prompt": "never"})
        assert task.constraint is not None
        compiled = compiler.submit(task.constraint, task.backend)
        return (
            unless_unsupported(compiled, task.constraint, task.on_unsupported, task.unheld)
            .result()
            .matcher()
        )

    return first_matcher


def fresh_cases(path: Path) -> list[Case]:
    """A workload's schemas, each time with a property of another name."""
    workload = read_workload(path)
    jobs = make_jobs(workload, "fresh", NUM_ROUNDS * len(workload.prompts), 1)
    schemas = [options["schema"] for _, options in jobs]
    return [
        Case(str(index), "workload", (), "json_schema", schema, ())
        for index, schema in enumerate(schemas)
    ]


def measure_ms(first_matcher: FirstMatcher, case: Case, vocabulary: Vocabulary) -> float | None:
    """The time to the first mask; None where the constraint is refused."""
    bitmask = np.zeros((1, vocabulary.num_words), np.int32)
    draft_of_text.cache_clear()  # or one way would find read what another has
    start = time.perf_counter()
    try:
        first_matcher(case).fill(bitmask, 0)
    except (Refused, GrammarError):
        return None
    return (time.perf_counter() - start) * 1e3


def measure_all(name: str, cases: Sequence[Case]) -> list[tuple[object, ...]]:
    """One row a way; the ways take turns on every schema, and only what all take counts."""
    vocabulary = load_vocabulary(name)
    compiler = GrammarCompiler(vocabulary)
    ways = {
        "bare": through_subject(BareLLGuidance(vocabulary)),
        "ours": through_subject(Router(vocabulary)),
        "compiler": through_compiler(compiler),
        "call": through_call(compiler),
    }
    for first_matcher in ways.values():  # imports, and the library's own first use
        measure_ms(first_matcher, cases[0], vocabulary)
    table = [
        [measure_ms(first_matcher, case, vocabulary) for first_matcher in ways.values()]
        for case in cases[1:]
    ]
    compiler.close()
    times = np.array([times for times in table if None not in times], np.float64)
    label = f"{Path(name).name if '/' in name else name}, {vocabulary.vocab_size:,}"
    return [
        (
            *(label, way, len(times)),
            *(f"{np.percentile(column, p):.2f}" for p in PERCENTILES),
            median_with_interval(column / times[:, 0]),
        )
        for way, column in zip(ways, times.T, strict=True)
    ]


def median_with_interval(values: NDArray[np.float64]) -> str:
    """The median and what 95 % of the medians of resamples lie between."""
    samples = np.random.default_rng(0).choice(values, (2000, len(values)))
    low, high = np.percentile(np.median(samples, axis=1), (2.5, 97.5))
    return f"{np.median(values):.2f} ({low:.2f} to {high:.2f})"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, nargs="?", default=SAMPLE)
    parser.add_argument("--workload", type=Path)
    parser.add_argument("--vocab", action="append")
    parser.add_argument("--sample", type=int)
    options = parser.parse_args()
    if options.workload is None:
        chosen = read_cases(options.data, options.sample)
    else:
        chosen = fresh_cases(options.workload)
    print_table(
        ("vocabulary", "", "schemas", "p50 ms", "p90 ms", "p99 ms", "/ bare"),
        [row for name in options.vocab or ["smollm2"] for row in measure_all(name, chosen)],
    )
