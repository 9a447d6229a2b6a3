"""What the demo prints: a table of the tasks, and how fast structure was against free text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from rich import box
from rich.console import Group, RenderableType
from rich.highlighter import ReprHighlighter
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from structspec.demo.tasks import DemoTask
from structspec.errors import StructspecError
from structspec.generation import Generation

HEADINGS = ("Task", "Valid", "Tokens", "Steps", "Tokens/step", "Acceptance", "Time")
WIDTHS = (6, 7, 6, 12, 12, 8)
MAX_TEXT = 140  # characters of free text to show


@dataclass(frozen=True, slots=True)
class Outcome:
    """One task and what came of it."""

    task: DemoTask
    result: Generation | StructspecError

    @property
    def is_valid(self) -> bool:
        """Whether there is a value and the task's own check agrees with it."""
        result = self.result
        return isinstance(result, Generation) and self.task.is_valid(result.value)


def build_table(outcomes: Sequence[Outcome], title: str) -> Panel:
    """Each task's figures in a row and its object below, where it has the whole width."""
    lines: list[RenderableType] = [_row(HEADINGS, style="bold"), Rule(style="dim")]
    for outcome in outcomes:
        lines.append(_row(_figures(outcome)))
        lines.append(Padding(_show(outcome.result), (0, 0, 1, 2)))
    return Panel(Group(*lines), title=title, box=box.ROUNDED)


def build_summary(outcomes: Sequence[Outcome]) -> Text:
    """The speed of structured output and of free text, and their ratio."""
    structured = _speed([outcome for outcome in outcomes if not outcome.task.is_free])
    free = _speed([outcome for outcome in outcomes if outcome.task.is_free])
    if structured is None or free is None:
        return Text("There is nothing to compare: one side has no finished task.")
    ratio = structured.tokens_per_second / free.tokens_per_second
    summary = Text(f"{structured.describe('Structured')}\n{free.describe('Free text')}\n")
    summary.append(f"Structured output was {ratio:.1f} × as fast as free text", style="bold")
    return summary.append(
        "\n(same model, engine and settings on this machine, one request at a time;"
        "\nthe time includes reading the prompt and compiling the constraint)"
    )


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens, steps and seconds of several tasks together."""

    num_tokens: int
    num_steps: int
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        """How fast they were written."""
        return self.num_tokens / self.seconds

    def describe(self, what: str) -> str:
        """One line about it."""
        return (
            f"{what + ':':<12}{self.num_tokens:>5} tokens in {self.num_steps:>4} target steps and"
            f" {self.seconds:5.1f} s, {self.tokens_per_second:5.0f} tokens/s"
        )


def _speed(outcomes: Sequence[Outcome]) -> Speed | None:
    results = [o.result for o in outcomes if isinstance(o.result, Generation)]
    if not results:
        return None
    return Speed(
        sum(result.usage.completion_tokens for result in results),
        sum(result.stats.num_target_steps for result in results),
        sum(result.stats.seconds for result in results),
    )


def _row(cells: Sequence[Text | str], style: str = "") -> Table:
    row = Table.grid(expand=True)
    row.add_column(ratio=1)
    for width in WIDTHS:
        row.add_column(justify="right", width=width)
    row.add_row(*cells, style=style)
    return row


def _figures(outcome: Outcome) -> tuple[Text | str, ...]:
    name, result = Text(outcome.task.name, style="bold cyan"), outcome.result
    if not isinstance(result, Generation):
        return name, _mark(False), *("",) * 5
    stats, num_tokens = result.stats, result.usage.completion_tokens
    return (
        name,
        Text("–", style="dim") if outcome.task.is_free else _mark(outcome.is_valid),
        str(num_tokens),
        str(stats.num_target_steps),
        f"{num_tokens / max(1, stats.num_target_steps):.2f}",
        f"{stats.num_accepted / stats.num_drafted:.0%}" if stats.num_drafted else "–",
        f"{stats.seconds:.2f} s",
    )


def _show(result: Generation | StructspecError) -> Text:
    """The value as Python shows it, text as it stands, or the error."""
    if not isinstance(result, Generation):
        return Text(str(result), style="red")
    value = result.value
    if isinstance(value, str):
        return Text(value if len(value) <= MAX_TEXT else value[: MAX_TEXT - 1] + "…")
    return ReprHighlighter()(str(value) if isinstance(value, Enum) else repr(value))


def _mark(is_valid: bool) -> Text:
    return Text("✓", style="bold green") if is_valid else Text("✗", style="bold red")
