"""What the demo prints: a table of the tasks, and how fast structure was against free text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from rich import box
from rich.highlighter import ReprHighlighter
from rich.table import Table
from rich.text import Text

from structspec.demo.tasks import DemoTask
from structspec.errors import StructspecError
from structspec.generation import Generation


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


def build_table(outcomes: Sequence[Outcome]) -> Table:
    """One row per task; fits 80 columns and uses up to 100."""
    table = Table(box=box.ROUNDED, show_lines=True, header_style="bold", padding=(0, 1))
    table.add_column("Task", style="cyan", max_width=8)
    table.add_column("Object", ratio=1, overflow="fold")
    table.add_column("Valid", justify="center")
    for heading in ("Tokens", "Steps", "Tokens\n/step", "Drafts\naccepted", "Time"):
        table.add_column(heading, justify="right", no_wrap=True)
    for outcome in outcomes:
        table.add_row(*_row(outcome))
    return table


def build_summary(outcomes: Sequence[Outcome]) -> Text:
    """The speed of structured output and of free text, and their ratio."""
    structured = _speed([outcome for outcome in outcomes if not outcome.task.is_free])
    free = _speed([outcome for outcome in outcomes if outcome.task.is_free])
    if structured is None or free is None:
        return Text("There is nothing to compare: one side has no finished task.")
    ratio = structured.tokens_per_second / free.tokens_per_second
    summary = Text(f"{structured.describe('Structured')}\n{free.describe('Free text')}\n")
    summary.append(f"On this machine structured output was {ratio:.1f} × as fast", style="bold")
    return summary.append(
        " as free text by the same model and engine (one request at a time, compile time included)."
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


def _row(outcome: Outcome) -> tuple[Text | str, ...]:
    result = outcome.result
    if not isinstance(result, Generation):
        return outcome.task.name, Text(str(result), style="red"), _mark(False), *("",) * 5
    stats, num_tokens = result.stats, result.usage.completion_tokens
    return (
        outcome.task.name,
        _show(result.value),
        Text("–", style="dim") if outcome.task.is_free else _mark(outcome.is_valid),
        str(num_tokens),
        str(stats.num_target_steps),
        f"{num_tokens / max(1, stats.num_target_steps):.2f}",
        f"{stats.num_accepted / stats.num_drafted:.0%}" if stats.num_drafted else "–",
        f"{stats.seconds:.2f} s",
    )


def _show(value: object) -> Text:
    """The value as Python shows it; text as it stands."""
    if isinstance(value, str):
        return Text(value)
    return ReprHighlighter()(str(value) if isinstance(value, Enum) else repr(value))


def _mark(is_valid: bool) -> Text:
    return Text("✓", style="bold green") if is_valid else Text("✗", style="bold red")
