"""Sampling whole rows on a GPU, beside torch's own ways over the same logits.

python -m tests.bench.bench_sample_rows
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import Tensor

from structspec.kernels.sample_rows import sample_rows
from structspec.kernels.sample_rows_filters import Filters
from tests.bench.few_rows_shapes import graph_us
from tests.bench.timing import print_table

DEVICE = torch.device("cuda")
VOCAB_SIZES = (49_152, 128_256)
LIMITS = {  # top_k, top_p, min_p
    "none": (0, 1.0, 0.0),
    "min_p .1": (0, 1.0, 0.1),
    "top_k 50": (50, 1.0, 0.0),
    "top_k 1000": (1000, 1.0, 0.0),
    "top_p .9": (0, 0.9, 0.0),
    "k 50, p .9": (50, 0.9, 0.0),
}
NUM_RUNNERS_UP = 3
SPREADS = {"spread": 3.0, "nearly flat": 1e-4}  # the standard deviation of a row's logits


def each_us(work: Callable[[], object], num_calls: int) -> float:
    """One call's share of a graph of so many."""
    return graph_us([work] * num_calls) / num_calls


def ours_us(
    logits: Tensor,
    temperature: float,
    limits: tuple[int, float, float] | None,
    *,
    is_masked: bool,
    num_runners_up: int = 0,
) -> float:
    """Each of the rows limited alike; None: without the kernels for limits."""
    num_rows, vocab_size = logits.shape
    words = torch.full(
        (num_rows, (vocab_size + 31) // 32), 0x55555555, dtype=torch.int32, device=DEVICE
    )
    rows = torch.arange(num_rows, device=DEVICE)
    ones = torch.ones(num_rows, device=DEVICE)
    top_k, top_p, min_p = limits or LIMITS["none"]
    args = (
        logits,
        words,
        rows if is_masked else torch.full_like(rows, -1),
        torch.tensor([0, 2], device=DEVICE),
        ones.bool(),
        ones * temperature,
        rows,
        rows,
        None if limits is None else Filters((ones * top_k).int(), ones * top_p, ones * min_p),
    )
    runners_up = rows.new_empty(num_rows, num_runners_up) if num_runners_up else None
    return each_us(lambda: sample_rows(*args, runners_up=runners_up), 20)


def torch_us(logits: Tensor, top_k: int, top_p: float, temperature: float) -> float:
    """The usual way: topk, or sort and cumsum, then a draw by exponential noise."""
    noise = torch.empty_like(logits, dtype=torch.float32)

    def draw() -> Tensor:
        scores = logits.float() / temperature
        if top_k:
            bound = scores.topk(top_k, dim=-1).values[:, -1:]
            scores = scores.masked_fill(scores < bound, float("-inf"))
        if top_p < 1:
            ordered, places = scores.sort(dim=-1, descending=True)
            before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
            ordered = ordered.masked_fill(before >= top_p, float("-inf"))
            scores = torch.empty_like(ordered).scatter_(-1, places, ordered)
        return (scores.softmax(-1) / noise.exponential_()).argmax(-1)

    return each_us(draw, 4)


def measure(vocab_size: int, num_rows: int, dtype: torch.dtype) -> tuple[object, ...]:
    """One line: argmax, then ours greedy, drawn, and drawn under masks of every second token."""
    logits = torch.randn(num_rows, vocab_size, device=DEVICE).to(dtype)
    figures = (
        each_us(lambda: logits.argmax(-1), 20),
        ours_us(logits, 0.0, None, is_masked=False),
        ours_us(logits, 0.7, None, is_masked=False),
        ours_us(logits, 0.7, None, is_masked=True),
    )
    return vocab_size, num_rows, str(dtype).split(".")[1], *(f"{us:.1f}" for us in figures)


def measure_runners_up(vocab_size: int, num_rows: int, dtype: torch.dtype) -> tuple[object, ...]:
    """One line: greedy, drawn, and drawn by kernels that look for limits; without and with."""
    logits = torch.randn(num_rows, vocab_size, device=DEVICE).to(dtype)
    figures = [
        ours_us(logits, temperature, limits, is_masked=False, num_runners_up=n)
        for temperature, limits in ((0.0, None), (0.7, None), (0.7, LIMITS["none"]))
        for n in (0, NUM_RUNNERS_UP)
    ]
    return vocab_size, num_rows, str(dtype).split(".")[1], *(f"{us:.1f}" for us in figures)


def measure_limits(vocab_size: int, num_rows: int, name: str, spread: str) -> tuple[object, ...]:
    """One line: all rows limited alike, ours and torch's way."""
    logits = (torch.randn(num_rows, vocab_size, device=DEVICE) * SPREADS[spread]).bfloat16()
    top_k, top_p, min_p = LIMITS[name]
    ours = ours_us(logits, 0.7, LIMITS[name], is_masked=False)
    usual = "-" if min_p else f"{torch_us(logits, top_k, top_p, 0.7):.1f}"
    return vocab_size, num_rows, spread, name, f"{ours:.1f}", usual


if __name__ == "__main__":
    print_table(
        ("vocabulary", "rows", "logits", "argmax us", "greedy us", "drawn us", "masked us"),
        [
            measure(vocab_size, num_rows, dtype)
            for vocab_size in VOCAB_SIZES
            for num_rows in (1, 8, 32, 128, 640)
            for dtype in (torch.float32, torch.bfloat16)
        ],
    )
    ways = ("greedy", "drawn", "drawn, may be limited")
    print_table(
        (
            "vocabulary",
            "rows",
            "logits",
            *(f"{way} us, n = {n}" for way in ways for n in (0, NUM_RUNNERS_UP)),
        ),
        [
            measure_runners_up(vocab_size, num_rows, dtype)
            for vocab_size in VOCAB_SIZES
            for num_rows in (1, 8, 32, 128, 640)
            for dtype in (torch.float32, torch.bfloat16)
        ],
    )
    print_table(
        ("vocabulary", "rows", "logits", "limits", "ours us", "torch us"),
        [
            measure_limits(*case)
            for case in itertools.product(VOCAB_SIZES, (1, 32, 128), LIMITS, SPREADS)
        ],
    )
