"""The run: cases through every column, with progress on stderr."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from rich.console import Console
from rich.progress import Progress

from structspec.bench.cases import Case
from structspec.bench.columns import make_subject
from structspec.bench.limits import Limits
from structspec.bench.outcome import Outcome
from structspec.bench.score import Judged
from structspec.bench.workers import Setting, judge_all


def run_columns(
    cases: Sequence[Case], columns: Sequence[str], vocabulary: str, limits: Limits, num_workers: int
) -> dict[str, Judged]:
    """Every case judged in every column, one column after the other."""
    results: dict[str, Judged] = {}
    with Progress(console=Console(stderr=True), transient=True) as progress:
        for column in columns:
            setting = Setting(partial(make_subject, column), vocabulary, limits, num_workers)
            task = progress.add_task(column, total=len(cases))

            def advance(_: Outcome, task: object = task) -> None:
                progress.advance(task)  # type: ignore[arg-type]

            results[column] = list(zip(cases, judge_all(cases, setting, advance), strict=True))
    return results
