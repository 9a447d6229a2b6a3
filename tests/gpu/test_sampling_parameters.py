"""Every sampling parameter on a GPU: the tokens of the CPU, with and without speculation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from structspec import LLM
from structspec.config import EngineConfig, SpeculativeConfig
from structspec.request import Request
from tests.gpu.mixed_requests import (
    IS_REHEARSAL,
    MAX_MODEL_LEN,
    MAX_TOKENS,
    MODEL,
    mixed_pairs,
    run,
    started,
)
from tests.lossless_pairs import TEXTS
from tests.real_requests import Pair

pytestmark = pytest.mark.gpu
PARAMETERS: tuple[dict[str, Any], ...] = (
    {"logprobs": 3},
    {"logprobs": 2, "logprobs_mode": "processed", "frequency_penalty": 0.5},
    {"prompt_logprobs": 1},
    {"logit_bias": {"28": 4.0, "260": -3.0}},
    {"bad_words": [" the", "!"]},
    {"repetition_penalty": 1.3},
    {"presence_penalty": 0.7, "frequency_penalty": 0.4},
    {"min_tokens": 6},
    {"stop_token_ids": [30]},
    {},
)
PAIRS: list[Pair] = [
    (prompt, {**options, **PARAMETERS[index % len(PARAMETERS)]})
    for index, (prompt, options) in enumerate(mixed_pairs())
]
MOST_NEAR_TIES = 3  # requests in which two tokens are as good as equally likely
METHODS = ("none", "forced", "ngram", "ngram_gpu", "suffix")


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with started() as llm:
        yield llm


@pytest.fixture(scope="module")
def written(llm: LLM) -> dict[float, list[Request]]:
    """By temperature; all requests together, with speculation."""
    return {temperature: run(llm, PAIRS, temperature=temperature) for temperature in (0.0, 0.8)}


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("num_at_once", [8, 1000])
def test_speculation_and_company_change_nothing(
    temperature: float, num_at_once: int, llm: LLM, written: dict[float, list[Request]]
) -> None:
    plain = run(llm, PAIRS, temperature=temperature, speculative=False, num_at_once=num_at_once)
    assert tokens_of(plain) == tokens_of(written[temperature])
    for one, other in zip(plain, written[temperature], strict=True):
        assert [entry.token_id for entry in one.logprobs] == [
            entry.token_id for entry in other.logprobs
        ]
        for entry, same in zip(one.logprobs, other.logprobs, strict=True):
            assert entry.logprob == pytest.approx(same.logprob, abs=1e-3)


def test_greedy_tokens_and_logprobs_are_those_of_the_cpu_engine(
    written: dict[float, list[Request]],
) -> None:
    with LLM(MODEL, device="cpu", config=EngineConfig(max_model_len=MAX_MODEL_LEN)) as llm:
        expected = run(llm, PAIRS, temperature=0.0)
    pairs = list(zip(written[0.0], expected, strict=True))
    same = [(a, b) for a, b in pairs if a.output_token_ids == b.output_token_ids]
    assert len(pairs) - len(same) <= MOST_NEAR_TIES
    for ours, theirs in same:
        for kind in ("logprobs", "prompt_logprobs"):
            for a, b in zip(getattr(ours, kind), getattr(theirs, kind), strict=True):
                assert a.token_id == b.token_id
                assert a.logprob == pytest.approx(b.logprob, abs=1e-2)
    assert sum(len(ours.logprobs) for ours, _ in same) > MAX_TOKENS / 2
    assert any(ours.prompt_logprobs for ours, _ in same)


@pytest.mark.parametrize("method", METHODS)
def test_drafts_of_every_kind_write_what_none_do(
    method: str, llm: LLM, written: dict[float, list[Request]]
) -> None:
    config = SpeculativeConfig(method=method)  # type: ignore[arg-type]
    with started(speculative=config) as other:
        requests = run(other, PAIRS, temperature=0.0)
        copies = [(f"Repeat this: {text}", {}) for text in TEXTS[: 2 if IS_REHEARSAL else 16]]
        run(other, copies, temperature=0.0)
    assert tokens_of(requests) == tokens_of(written[0.0])


def tokens_of(requests: list[Request]) -> list[list[int]]:
    return [request.output_token_ids for request in requests]
