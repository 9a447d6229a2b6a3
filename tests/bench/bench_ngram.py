"""Prompt lookup by context length, and as a ratio to one pass of numpy over the tokens.

python -m tests.bench.bench_ngram
"""

from __future__ import annotations

import numpy as np

from structspec.config import SpeculativeConfig
from structspec.drafters.ngram import NgramDrafter
from structspec.engine.batch import Batch, ScheduledRequest
from structspec.request import Request, SamplingParams
from tests.bench.timing import measure_us, print_table

NUM_KINDS = 5_000  # of tokens in the context: how many positions agree by chance


def measure(num_tokens: int) -> tuple[object, ...]:
    """The worst case: no match, so that the whole context is searched."""
    token_ids = np.random.default_rng(0).integers(0, NUM_KINDS, num_tokens, dtype=np.int32)
    token_ids[-1] = NUM_KINDS
    request = Request(0, token_ids.tolist(), SamplingParams(), 1000)
    batch = Batch([ScheduledRequest(request, 1, 15, True)])
    drafter = NgramDrafter(SpeculativeConfig())
    ours = measure_us(lambda: drafter.propose(batch))
    one_pass = measure_us(lambda: np.flatnonzero(token_ids == NUM_KINDS))
    return num_tokens, f"{one_pass:.1f}", f"{ours:.1f}", f"{ours / one_pass:.1f}"


if __name__ == "__main__":
    print_table(
        ("tokens", "numpy us", "lookup us", "ratio"),
        [measure(num_tokens) for num_tokens in (256, 2_048, 8_192, 32_768, 131_072)],
    )
