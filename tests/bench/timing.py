"""Timing for the small benchmarks: medians, since neighbours on a shared machine only add."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

import torch
from rich.console import Console
from rich.table import Table

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def measure_us(work: Callable[[], object], num_runs: int = 50) -> float:
    """The median of `num_runs` calls in microseconds, the device's work included."""
    for _ in range(3):
        work()
    times = []
    for _ in range(num_runs):
        _synchronize()
        start = time.perf_counter()
        work()
        _synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def _synchronize() -> None:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """One line per row, numbers to the right."""
    table = Table(title=f"{DEVICE}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    for column in columns:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*map(str, row))
    Console().print(table)
