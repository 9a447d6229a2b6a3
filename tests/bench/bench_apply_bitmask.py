"""Masking logits, per row and as a ratio to an argmax over the same rows.

python -m tests.bench.bench_apply_bitmask
"""

from __future__ import annotations

import torch

from structspec.kernels.apply_bitmask import apply_bitmask
from tests.bench.timing import DEVICE, measure_us, print_table


def measure(vocab_size: int, num_rows: int) -> tuple[object, ...]:
    """One line of the table."""
    logits = torch.randn(num_rows, vocab_size, device=DEVICE)
    words = torch.randint(-(2**31), 2**31, (num_rows, (vocab_size + 31) // 32))
    bitmask = words.to(DEVICE, torch.int32)
    rows = torch.arange(num_rows, device=DEVICE)
    argmax = measure_us(lambda: logits.argmax(-1)) / num_rows
    ours = measure_us(lambda: apply_bitmask(logits, bitmask, rows)) / num_rows
    return vocab_size, num_rows, f"{argmax:.1f}", f"{ours:.1f}", f"{ours / argmax:.2f}"


if __name__ == "__main__":
    print_table(
        ("vocabulary", "rows", "argmax us/row", "mask us/row", "ratio"),
        [measure(vocab, rows) for vocab in (49_152, 128_256, 152_064) for rows in (1, 16, 64)],
    )
