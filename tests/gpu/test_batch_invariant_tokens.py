"""With batch_invariant=True bfloat16 writes the same tokens in any company, guessed or not."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from structspec import LLM
from tests.gpu.mixed_requests import IS_REHEARSAL, TOGETHER, mixed_pairs, run, started

pytestmark = pytest.mark.gpu
DTYPE = torch.float32 if IS_REHEARSAL else torch.bfloat16  # a CPU's is not invariant, and slow
PAIRS = mixed_pairs()
SHUFFLED = random.Random(2).sample(range(len(PAIRS)), len(PAIRS))
WAYS = {
    "alone-without-speculation": {"num_at_once": 1, "speculative": False},
    "together": {"num_at_once": TOGETHER},
    "together-without-speculation": {"num_at_once": TOGETHER, "speculative": False},
    "eight-at-once-shuffled": {"num_at_once": 8, "order": SHUFFLED},
}


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with started(dtype=DTYPE, batch_invariant=True) as llm:
        yield llm


@pytest.fixture(scope="module")
def alone(llm: LLM) -> list[list[int]]:
    """What each request writes with nobody beside it, with speculation."""
    requests = run(llm, PAIRS, temperature=0.0, num_at_once=1)
    return [request.output_token_ids for request in requests]


@pytest.mark.parametrize("way", list(WAYS))
def test_every_request_writes_the_same_tokens(way: str, llm: LLM, alone: list[list[int]]) -> None:
    options: dict[str, Any] = WAYS[way]
    requests = run(llm, PAIRS, temperature=0.0, **options)
    different = {
        index: (request.output_token_ids, expected)
        for index, (request, expected) in enumerate(zip(requests, alone, strict=True))
        if request.output_token_ids != expected
    }
    assert not different
