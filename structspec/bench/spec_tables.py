"""Figures of draft lengths as a table: a row is a test at a number of requests."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table

from structspec.bench.engine_runs import Figure
from structspec.bench.engine_tables import interval_text
from structspec.bench.spec import best_fixed


def spec_table(figures: Sequence[Figure], title: str) -> Table:
    """What was chosen and each fixed length's tokens per second; the last columns compare."""
    lengths = list(dict.fromkeys(figure["length"] for figure in figures))
    table = Table(title=title, box=SIMPLE_HEAD)
    headings = ["requests", "test", "guessed a step", "tokens/step", "tokens/s"]
    headings += [*(f"k = {length}" for length in lengths), "best k", "÷ best k"]
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for best in best_fixed(figures):
        cell = [
            f for f in figures if (f["test"], f["requests"]) == (best["test"], best["requests"])
        ]
        fixed = {figure["length"]: f"{figure['fixed_tokens_per_second']:,.0f}" for figure in cell}
        table.add_row(
            str(best["requests"]),
            best["test"],
            f"{best['adaptive_guessed_per_step']:.2f}",
            f"{best['adaptive_tokens_per_step']:.2f}",
            f"{best['adaptive_tokens_per_second']:,.0f}",
            *(fixed.get(length, "") for length in lengths),
            str(best["length"]),
            f"{best['ratio']:.3f}: {interval_text(best)}",
        )
    return table
