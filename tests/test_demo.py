"""The demo's table and sentence, from outcomes that are written down here."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console, RenderableType

from structspec.demo.report import Outcome, build_summary, build_table
from structspec.demo.tasks import TASKS, DemoTask, is_arithmetic
from structspec.errors import Truncated
from structspec.generation import Generation
from structspec.request import RequestStats, Usage

FREE = DemoTask("free text", "p")
CHOICE = DemoTask("choices", "p", {"choices": ["a"]}, lambda value: value == "a")


def finished(task: DemoTask, value: Any, num_tokens: int, seconds: float) -> Outcome:
    stats = RequestStats(num_target_steps=4, num_drafted=8, num_accepted=6, seconds=seconds)
    generation = Generation(value, str(value), (), "stop", Usage(5, num_tokens), stats, None)
    return Outcome(task, generation)


def printed(renderable: RenderableType, width: int = 80) -> str:
    console = Console(width=width, file=io.StringIO())
    console.print(renderable)
    output = console.file
    assert isinstance(output, io.StringIO)
    return output.getvalue()


@pytest.mark.parametrize("width", [80, 100])
def test_table_fits_the_terminal(width: int) -> None:
    outcomes = [finished(task, "word " * 100, 1000, 12.5) for task in (CHOICE, FREE)]
    lines = printed(build_table(outcomes, "t"), width).splitlines()
    assert {len(line) for line in lines} == {width}


def test_row_shows_what_it_took() -> None:
    table = printed(build_table([finished(CHOICE, "a", 10, 0.5)], "t"))
    row = next(line for line in table.splitlines() if "choices" in line)
    assert row.strip("│ ").split() == ["choices", "✓", "10", "4", "2.50", "75%", "0.50", "s"]


def test_value_that_fails_its_own_check_is_marked() -> None:
    outcome = finished(CHOICE, "b", 10, 0.5)
    assert not outcome.is_valid
    assert "✗" in printed(build_table([outcome], "t"))


def test_error_takes_the_place_of_the_object() -> None:
    outcome = Outcome(CHOICE, Truncated("the output was cut"))
    table = printed(build_table([outcome], "t"))
    assert not outcome.is_valid
    assert "✗" in table
    assert "the output was cut" in table


def test_summary_compares_tokens_per_second() -> None:
    outcomes = [finished(CHOICE, "a", 100, 2.0), finished(FREE, "x", 50, 2.0)]
    summary = printed(build_summary(outcomes))
    assert "100 tokens in    4 target steps and   2.0 s,    50 tokens/s" in summary
    assert "Structured output was 2.0 × as fast as free text" in summary


def test_summary_without_one_side_compares_nothing() -> None:
    assert "nothing to compare" in printed(build_summary([finished(FREE, "x", 50, 2.0)]))


def test_demo_has_every_kind_of_constraint_and_free_text() -> None:
    kinds = {next(iter(set(task.options) - {"max_tokens"}), "free") for task in TASKS}
    assert kinds == {"schema", "regex", "choices", "grammar", "free"}
    assert len(TASKS) >= 8


@pytest.mark.parametrize(
    ("text", "expected"), [("3 + 4 * (5 - 1)", True), ("f(3)", False), ("a + 1", False)]
)
def test_arithmetic_is_numbers_and_operators(text: str, expected: bool) -> None:
    assert is_arithmetic(text) is expected
