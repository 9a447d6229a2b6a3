"""What one forward pass costs by its number of rows: how many drafts pay is read off here.

python -m tests.bench.bench_forward
"""

from __future__ import annotations

import statistics
import time

import torch
from rich.console import Console
from rich.table import Table

from structspec.config import EngineConfig
from structspec.engine.batch import Batch, ScheduledRequest, guessed
from structspec.engine.model_runner import ModelRunner
from structspec.models import load_model
from structspec.request import Request, SamplingParams

NUM_ROWS = (1, 2, 4, 6, 8, 12, 16, 32)
CONTEXTS = (60, 500)
NUM_RUNS = 25


def measure_ms(runner: ModelRunner, context: int, num_rows: int) -> float:
    """The median time of a pass with one known token and num_rows - 1 drafts."""
    request = Request(0, list(range(context + 1)), SamplingParams(), max_tokens=100)
    request.block_table = list(range(64))
    num_drafts = num_rows - 1
    batch = Batch([ScheduledRequest(request, 1, num_drafts, True, context)])
    draft = guessed([[5] * num_drafts])
    seconds = []
    for _ in range(NUM_RUNS):
        start = time.perf_counter()
        runner.forward(batch, draft)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds) * 1e3


def main() -> None:
    runner = ModelRunner(load_model("smollm2-135m"), EngineConfig())
    table = Table(title=f"SmolLM2-135M float32, {torch.get_num_threads()} threads, ms per pass")
    table.add_column("context")
    for num_rows in NUM_ROWS:
        table.add_column(f"{num_rows} rows", justify="right")
    for context in CONTEXTS:
        costs = [measure_ms(runner, context, num_rows) for num_rows in NUM_ROWS]
        table.add_row(str(context), *(f"{cost:.1f}" for cost in costs))
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
