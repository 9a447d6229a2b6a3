"""An engine's figures as tables, one a part; a row is a figure, and a cell what is said of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table

from structspec.bench.engine import PLAIN
from structspec.bench.engine_runs import Figure
from structspec.bench.engine_stopwatch import HOST_PARTS

Columns = Mapping[str, Callable[[Figure], str]]  # by heading


def engine_tables(figures: Sequence[Figure], title: str) -> Iterator[Table]:
    """The parts in the order in which they were measured."""
    for part in dict.fromkeys(figure["part"] for figure in figures):
        rows = [row for row in figures if row["part"] == part and _is_row(row)]
        if part in COLUMNS and rows:
            columns = COLUMNS[part]
            table = Table(title=f"{part}: {title}", box=SIMPLE_HEAD)
            for heading in columns:
                table.add_column(heading, justify="right", no_wrap=True)
            for row in rows:
                table.add_row(*(column(row) for column in columns.values()))
            yield table


def _is_row(figure: Figure) -> bool:
    return figure["part"] != "steps" or "step_ms" in figure  # too few steps say nothing


def _speed_columns() -> Columns:
    return {
        "requests": lambda row: str(row["requests"]),
        "test": lambda row: row["test"],
        "tokens/s": lambda row: f"{row['tokens_per_second']:,.0f}",
        "÷ plain": lambda row: "" if row["test"] == PLAIN else f"{row['ratio_to_plain']:.2f}",
        "ms a token": lambda row: f"{row['token_ms']:.2f}",
        "ms to the first": lambda row: f"{row['first_token_ms']:.0f}",
        "tokens/step": lambda row: f"{row['tokens_per_step']:.2f}",
        "failed": lambda row: str(row["failed"] or ""),
    }


def interval_text(row: Figure) -> str:
    """A ratio's interval and how sure it is."""
    low, high = row["interval"]
    return f"{low:.3f} to {high:.3f} ({row['confidence']:.1%})"


def _first_token_text(kind: str) -> Callable[[Figure], str]:
    def text(row: Figure) -> str:
        if row["kind"] == "first":
            return f"{max(row['ms']):.1f} at most" if kind == "first_ms" else ""
        return f"{row[kind]['p50']:.2f} / {row[kind]['p90']:.2f}" if kind in row else ""

    return text


def _step_columns() -> Columns:
    parts = {part: _host_text(part) for part in (*HOST_PARTS, "other")}
    return {
        "requests": lambda row: str(row["requests"]),
        "step": _step_text,
        "ms": lambda row: f"{row['step_ms']:.2f}",
        "device": lambda row: f"{sum(row['device_ms'].values()):.2f}" if row["device_ms"] else "",
        **parts,
    }


def _host_text(part: str) -> Callable[[Figure], str]:
    return lambda row: f"{row['host_ms'][part]:.2f}"


def _step_text(row: Figure) -> str:
    if row["by"] == "test":
        return f"{row['test']}{' with drafts' if row['is_speculative'] else ''}"
    return f"context {row['context']}" if row["by"] == "context" else f"{row['guesses']} guesses"


COLUMNS: Mapping[str, Columns] = {
    "engine": {
        "model": lambda row: row["model"],
        "dtype": lambda row: row["dtype"],
        "device": lambda row: row["device"],
        "start-up s": lambda row: f"{row['start_up_s']:.1f}",
        "KV tokens": lambda row: f"{row['kv_tokens']:,}",
    },
    "speed": _speed_columns(),
    "drafts": _speed_columns(),
    "neighbours": {
        "beside": lambda row: row["beside"],
        "plain ones": lambda row: str(row["plain"]),
        "their tokens/s": lambda row: f"{row['beside_tokens_per_second']:,.0f}",
        "÷ alone": lambda row: f"{row['ratio']:.3f}",
        "interval": interval_text,
        "rounds": lambda row: str(row["pairs"]),
    },
    "first-token": {
        "p50 / p90 ms": lambda row: row["kind"],
        "plain": _first_token_text("plain_ms"),
        "warm": _first_token_text("warm_ms"),
        "fresh": _first_token_text("fresh_ms"),
        "fresh − warm": _first_token_text("fresh_minus_warm_ms"),
        "first met": _first_token_text("first_ms"),
    },
    "prefill": {
        "prompts": lambda row: str(row["prompts"]),
        "tokens each": lambda row: f"{row['prompt_tokens']:,}",
        "tokens/s": lambda row: f"{row['tokens_per_second']:,.0f}",
        "TFLOP/s": lambda row: f"{row['tflops']:.3g}" if "tflops" in row else "",
        "a product's": lambda row: f"{row['matrix_tflops']:.3g}",
    },
    "steps": _step_columns(),
}
