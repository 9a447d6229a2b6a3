"""The cells of an engine's run as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table

from structspec.bench.engine import PLAIN, Cell

_HEADINGS = ("tokens/s", "÷ plain", "ms a token", "ms to the first", "tokens/step", "failed")


def engine_table(cells: Sequence[Cell], title: str) -> Table:
    """One row a test and number of requests; medians over the runs."""
    table = Table("requests", "test", title=title, box=SIMPLE_HEAD)
    for heading in _HEADINGS:
        table.add_column(heading, justify="right", no_wrap=True)
    plain = {cell.num_requests: cell for cell in cells if cell.test == PLAIN}
    for cell in cells:
        base = plain.get(cell.num_requests)
        is_base = base is None or base is cell
        table.add_row(
            str(cell.num_requests),
            cell.test,
            f"{cell.median('tokens_per_second'):,.0f}",
            "" if is_base or base is None else f"{cell.ratio_to(base):.2f}",
            f"{cell.median('token_ms'):.2f}",
            f"{cell.median('first_token_ms'):.0f}",
            f"{cell.median('tokens_per_step'):.2f}",
            str(sum(run.num_failed for run in cell.runs) or ""),
        )
    return table
