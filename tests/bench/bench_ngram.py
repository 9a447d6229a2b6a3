"""Prompt lookup by context and number of requests, beside a pass of numpy over all their tokens.

python -m tests.bench.bench_ngram
"""

from __future__ import annotations

import time

import numpy as np

from structspec.config import SpeculativeConfig
from structspec.drafters.ngram import NgramDrafter
from structspec.engine.batch import Batch, ScheduledRequest
from structspec.request import Request, SamplingParams
from tests.bench.bench_drafting_costs import words
from tests.bench.timing import measure_us, print_table

CONTEXTS = (128, 2_048, 32_768)
NUMS_REQUESTS = (1, 8, 64, 256)
NUM_SLOTS = 15
NUM_NEW = 4  # tokens that each step brings a request
NUM_STEPS = 20


def measure(num_tokens: int, num_requests: int) -> tuple[object, ...]:
    """A step of all requests: microseconds of the first, which takes all in, and of later ones."""
    length = num_tokens + NUM_NEW * (NUM_STEPS + 4)
    texts = [words(length, seed) for seed in range(num_requests)]
    requests = [
        Request(index, text[:num_tokens], SamplingParams(), length)
        for index, text in enumerate(texts)
    ]
    batch = Batch([ScheduledRequest(request, 1, NUM_SLOTS, True) for request in requests])
    drafter = NgramDrafter(SpeculativeConfig())
    start = time.perf_counter()
    drafter.propose(batch)
    first = (time.perf_counter() - start) * 1e6

    def step() -> None:
        for request, text in zip(requests, texts, strict=True):
            place = len(request.token_ids)
            request.token_ids += text[place : place + NUM_NEW]
        drafter.propose(batch)

    later = measure_us(step, NUM_STEPS)
    table = np.array([text[:num_tokens] for text in texts], np.int32)
    one_pass = measure_us(lambda: np.count_nonzero(table == 1), 5)
    return num_tokens, num_requests, f"{first:.0f}", f"{later:.1f}", f"{one_pass:.1f}"


if __name__ == "__main__":
    print_table(
        ("tokens", "requests", "first step us", "later us", "numpy us"),
        [measure(n, m) for n in CONTEXTS for m in NUMS_REQUESTS if n * m <= 2**22],
    )
