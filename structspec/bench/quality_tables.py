"""The summaries as a table for people, and the outputs one by one as JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table

from structspec.bench.quality_configurations import DEFAULT
from structspec.bench.quality_grade import grade
from structspec.bench.quality_outputs import Output
from structspec.bench.quality_summary import Mean, Summary
from structspec.bench.quality_tasks import ExtractionTask
from structspec.errors import InvalidRequest

_HEADINGS = (
    "right %",
    "− default",
    "valid %",
    "log p/token",
    "log p",
    "− default",
    "tokens",
    "tokens/step",
    "seconds",
)


def quality_table(summaries: Mapping[str, Summary], num_tasks: int) -> Table:
    """One row a configuration; differences to the default with their 95 % intervals."""
    title = f"{num_tasks} tasks, means; differences to the default, task by task"
    table = Table("", title=title, box=SIMPLE_HEAD)
    for heading in _HEADINGS:
        table.add_column(heading, justify="right", no_wrap=True)
    for name, summary in summaries.items():
        table.add_row(name, *_cells(summary, has_differences=name != DEFAULT.name))
    return table


def _cells(summary: Summary, *, has_differences: bool) -> Iterator[str]:
    means, per_step = summary.means, summary.tokens_per_step
    yield f"{100 * means['right_fields'].mean:.1f}"
    yield _difference(means["right_fields"], 100, 1) if has_differences else ""
    yield f"{100 * means['valid'].mean:.1f}"
    yield f"{means['token_log_prob'].mean:.3f}"
    yield f"{means['log_prob'].mean:.2f}"
    yield _difference(means["log_prob"], 1, 2) if has_differences else ""
    yield f"{means['tokens'].mean:.1f}"
    yield "–" if per_step is None else f"{per_step:.2f}"
    yield f"{means['seconds'].mean:.2f}"


def write_wrong(
    path: Path, tasks: Sequence[ExtractionTask], outputs: Mapping[str, Sequence[Output]]
) -> None:
    """One JSON line for each output that is not right in every field, the worst first."""
    rows = []
    for name, column in outputs.items():
        for task, output in zip(tasks, column, strict=True):
            graded = grade(output.text, task.schema, task.answer)
            if graded.wrong:
                row = {
                    "configuration": name,
                    "task": task.id,
                    "wrong": graded.wrong,
                    "text": output.text,
                    "answer": task.answer,
                    "prompt": task.prompt,
                    "error": output.error,
                }
                rows.append((graded.accuracy, json.dumps(row, ensure_ascii=False)))
    try:
        path.write_text("".join(f"{line}\n" for _, line in sorted(rows)), encoding="utf-8")
    except OSError as error:
        raise InvalidRequest(f"cannot write {path}: {error.strerror}") from error


def _difference(mean: Mean, factor: float, places: int) -> str:
    values = (factor * value for value in (mean.difference, mean.low, mean.high))
    middle, low, high = (f"{value:+.{places}f}" for value in values)
    return f"{middle} [{low}, {high}]"
