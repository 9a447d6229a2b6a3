"""Sampling whole rows on a GPU, beside torch's argmax over the same logits.

python -m tests.bench.bench_sample_rows
"""

from __future__ import annotations

import torch

from structspec.kernels.sample_rows import sample_rows
from tests.bench.bench_few_rows import graph_us
from tests.bench.timing import print_table


def measure(vocab_size: int, num_rows: int, dtype: torch.dtype) -> tuple[object, ...]:
    """One line: argmax, then ours greedy, drawn, and drawn under masks of every second token."""
    device = torch.device("cuda")
    logits = torch.randn(num_rows, vocab_size, device=device).to(dtype)
    words = torch.full((num_rows, (vocab_size + 31) // 32), 0x55555555, device=device)
    rows = torch.arange(num_rows, device=device)
    stops = torch.tensor([0, 2], device=device)

    def ours(temperature: float, *, is_masked: bool) -> float:
        args = (
            logits,
            words.int(),
            rows if is_masked else torch.full_like(rows, -1),
            stops,
            torch.ones(num_rows, dtype=torch.bool, device=device),
            torch.full((num_rows,), temperature, device=device),
            rows,
            rows,
        )
        return graph_us([lambda: sample_rows(*args)] * 20)

    figures = (
        graph_us([lambda: logits.argmax(-1)] * 20),
        ours(0.0, is_masked=False),
        ours(0.7, is_masked=False),
        ours(0.7, is_masked=True),
    )
    return vocab_size, num_rows, str(dtype).split(".")[1], *(f"{us:.1f}" for us in figures)


if __name__ == "__main__":
    print_table(
        ("vocabulary", "rows", "logits", "argmax us", "greedy us", "drawn us", "masked us"),
        [
            measure(vocab_size, num_rows, dtype)
            for vocab_size in (49_152, 128_256)
            for num_rows in (1, 8, 32, 128, 640)
            for dtype in (torch.float32, torch.bfloat16)
        ],
    )
