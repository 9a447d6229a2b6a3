"""In float32 a GPU writes what the CPU engine writes, however its steps are put together."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from structspec import LLM
from structspec.config import EngineConfig
from structspec.request import Request
from tests.gpu.divergences import Judge
from tests.gpu.mixed_requests import (
    IS_REHEARSAL,
    MAX_MODEL_LEN,
    MAX_TOKENS,
    MODEL,
    TOGETHER,
    mixed_pairs,
    run,
    started,
)

pytestmark = pytest.mark.gpu
PAIRS = mixed_pairs()
SHUFFLED = random.Random(1).sample(range(len(PAIRS)), len(PAIRS))
TEMPERATURES = pytest.mark.parametrize("temperature", [0.0, 0.8])
WAYS = {
    "alone": {"num_at_once": 1},
    "alone-without-speculation": {"num_at_once": 1, "speculative": False},
    "eight-at-once-shuffled": {"num_at_once": 8, "order": SHUFFLED},
    "together-shuffled": {"num_at_once": TOGETHER, "order": SHUFFLED},
    "together-without-speculation": {"num_at_once": TOGETHER, "speculative": False},
}
ENGINES = {
    "eager-without-prefix-cache": {"enforce_eager": True, "enable_prefix_caching": False},
    "not-ahead-chunks-of-64": {"async_scheduling": False, "max_num_batched_tokens": 64},
    "chunks-of-512": {"max_num_batched_tokens": 512},
}


@pytest.fixture(scope="module")
def of_the_cpu() -> list[Request]:
    with LLM(MODEL, device="cpu", config=EngineConfig(max_model_len=MAX_MODEL_LEN)) as llm:
        return run(llm, PAIRS, temperature=0.0)


@pytest.fixture(scope="module")
def usual() -> Iterator[LLM]:
    """Steps of at most 4,096 tokens, captured, launched ahead; a KV cache sized by measuring."""
    with started(num_blocks=None, gpu_memory_utilization=0.5) as llm:
        yield llm


@pytest.fixture(scope="module")
def written(usual: LLM) -> dict[float, list[Request]]:
    """By temperature; all requests together, with speculation."""
    return {temperature: run(usual, PAIRS, temperature=temperature) for temperature in (0.0, 0.8)}


@pytest.mark.skipif(IS_REHEARSAL, reason="a rehearsal has fewer")
def test_there_are_at_least_sixty_requests_of_every_kind() -> None:
    kinds = {kind for _, options in PAIRS for kind in options}
    assert len(PAIRS) >= 60
    assert {"schema", "regex", "choices", "grammar", "stop", "ignore_eos"} <= kinds
    assert sum(options.keys() <= {"stop", "ignore_eos", "max_tokens"} for _, options in PAIRS) >= 5


def test_greedy_tokens_are_those_of_the_cpu_engine(
    written: dict[float, list[Request]], of_the_cpu: list[Request], judge: Judge
) -> None:
    judge.check(written[0.0], of_the_cpu)
    assert any(request.stats.num_accepted for request in written[0.0])
    assert sum(request.num_output_tokens for request in written[0.0]) > len(PAIRS) * MAX_TOKENS / 4


def test_what_is_drawn_is_best_by_the_cpus_logits_too(
    written: dict[float, list[Request]], judge: Judge
) -> None:
    """Of a few requests: a token's score is its logit / temperature and noise of seed and place."""
    for request in written[0.8][::7]:
        for position in range(0, request.num_output_tokens, 9):
            scores = judge.scores(request, position)
            assert scores.max() - scores[request.output_token_ids[position]] < 1e-3
    greedy = [request.output_token_ids for request in written[0.0]]
    assert greedy != [request.output_token_ids for request in written[0.8]]


@TEMPERATURES
@pytest.mark.parametrize("way", list(WAYS))
def test_neither_company_nor_speculation_changes_a_token(
    way: str,
    temperature: float,
    usual: LLM,
    written: dict[float, list[Request]],
    judge: Judge,
) -> None:
    options: dict[str, Any] = WAYS[way]
    requests = run(usual, PAIRS, temperature=temperature, **options)
    judge.check(requests, written[temperature])
    assert any(request.stats.num_cached_tokens for request in requests)
    is_drafted = any(request.stats.num_drafted for request in requests)
    assert is_drafted == options.get("speculative", True)


@pytest.fixture(scope="module", params=list(ENGINES))
def other(request: pytest.FixtureRequest) -> Iterator[LLM]:
    with started(**ENGINES[request.param]) as llm:
        yield llm


@TEMPERATURES
def test_neither_graphs_nor_running_ahead_nor_chunks_nor_prefixes_change_a_token(
    temperature: float, other: LLM, written: dict[float, list[Request]], judge: Judge
) -> None:
    judge.check(run(other, PAIRS, temperature=temperature), written[temperature])
