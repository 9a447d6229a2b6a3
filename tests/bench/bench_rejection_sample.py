"""A sampler step by kind of request, per row and as a ratio to the greedy step.

python -m tests.bench.bench_rejection_sample
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from structspec.config import SpeculativeConfig
from structspec.engine.batch import Batch, Draft, Mask, ScheduledRequest, guessed, no_mask
from structspec.engine.rejection_sampler import RejectionSampler
from structspec.request import Request, SamplingParams
from tests.bench.timing import DEVICE, measure_us, print_table

VOCAB_SIZE = 49_152
NUM_DRAFTS = 15
KINDS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "temperature": {"temperature": 0.8},
    "temperature, min-p": {"temperature": 0.8, "min_p": 0.05},
    "temperature, top-k": {"temperature": 0.8, "top_k": 50},
    "temperature, top-p": {"temperature": 0.8, "top_p": 0.95},
    "temperature, drafts drawn from q": {"temperature": 0.8},
    "temperature, drafts drawn from q, as blocks": {"temperature": 0.8},
}


@dataclass(frozen=True)
class Step:
    """What a sampler is called with; nothing is masked."""

    logits: torch.Tensor
    batch: Batch
    draft: Draft
    mask: Mask


def make_step(num_requests: int, params: dict[str, Any], has_q: bool) -> Step:
    """`num_requests` requests whose drafts are mostly right, on logits as peaked as a model's."""
    num_rows = num_requests * (NUM_DRAFTS + 1)
    logits = torch.randn(num_rows, VOCAB_SIZE, device=DEVICE) * 3
    best = logits.argmax(-1).view(num_requests, -1)[:, :NUM_DRAFTS]
    q = logits[:NUM_DRAFTS].softmax(-1) if has_q else None
    requests = [Request(i, [0], SamplingParams(**params), 1000) for i in range(num_requests)]
    return Step(
        logits,
        Batch([ScheduledRequest(request, 1, NUM_DRAFTS, True) for request in requests]),
        guessed(best.tolist(), [q] * num_requests),
        no_mask(VOCAB_SIZE // 32, [NUM_DRAFTS] * num_requests),
    )


def measure(num_requests: int) -> list[tuple[object, ...]]:
    """One line per kind of request."""
    num_rows, lines, greedy = num_requests * (NUM_DRAFTS + 1), [], 0.0
    for kind, params in KINDS.items():
        step = make_step(num_requests, params, has_q="drawn from q" in kind)
        method = "block" if "blocks" in kind else "standard"
        sampler = RejectionSampler(
            VOCAB_SIZE, speculative=SpeculativeConfig(rejection_sample_method=method)
        )
        time = measure_us(
            lambda step=step, sampler=sampler: sampler(
                step.logits, step.batch, step.draft, step.mask
            ),
            num_runs=20,
        )
        greedy = greedy or time
        lines.append((num_rows, kind, f"{time / num_rows:.1f}", f"{time / greedy:.1f}"))
    return lines


if __name__ == "__main__":
    print_table(
        ("rows", "kind", "us/row", "ratio"),
        [line for num_requests in (1, 4) for line in measure(num_requests)],
    )
