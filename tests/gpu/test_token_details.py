"""What is told of each token on a GPU: what the CPU tells, and the same with drafts and without."""

from __future__ import annotations

from typing import Any

import pytest

from structspec import LLM
from structspec.config import EngineConfig
from structspec.request import Request
from tests.gpu.mixed_requests import MAX_MODEL_LEN, MODEL, mixed_pairs, run, started
from tests.real_requests import Pair

pytestmark = pytest.mark.gpu
PAIRS: list[Pair] = [
    (prompt, {**options, "token_details": index % 4})
    for index, (prompt, options) in enumerate(mixed_pairs())
]
MOST_NEAR_TIES = 3  # requests in which two tokens are as good as equally likely
OF_DRAFTS = {"forced", "drafted", "recovered"}


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_drafts_change_where_tokens_came_from_and_nothing_else(temperature: float) -> None:
    with started() as llm:
        drafted = run(llm, PAIRS, temperature=temperature)
        plain = run(llm, PAIRS, temperature=temperature, speculative=False)
    for one, other in zip(drafted, plain, strict=True):
        assert one.output_token_ids == other.output_token_ids
        check_same(one, other, 1e-3)
        assert {detail.origin for detail in other.token_details} == {"sampled"}
        counts = [detail.origin in ("forced", "drafted") for detail in one.token_details]
        assert sum(counts) == one.stats.num_accepted
    assert {detail.origin for one in drafted for detail in one.token_details} > OF_DRAFTS


def test_greedy_details_are_those_of_the_cpu_engine() -> None:
    options: dict[str, Any] = {"temperature": 0.0, "speculative": False}
    with started() as llm:
        ours = run(llm, PAIRS, **options)
    with LLM(MODEL, device="cpu", config=EngineConfig(max_model_len=MAX_MODEL_LEN)) as llm:
        theirs = run(llm, PAIRS, **options)
    pairs = [*zip(ours, theirs, strict=True)]
    same = [(a, b) for a, b in pairs if a.output_token_ids == b.output_token_ids]
    assert len(pairs) - len(same) <= MOST_NEAR_TIES
    for one, other in same:
        check_same(one, other, 1e-2)
        for detail in one.token_details:  # a mask takes from other tokens only
            assert detail.masked_logprob >= detail.logprob - 1e-2


def check_same(one: Request, other: Request, tolerance: float) -> None:
    """Every token of a request has its details, and they tell the same of it."""
    written = one.output_token_ids
    assert [detail.token_id for detail in one.token_details] == written
    for ours, theirs in zip(one.token_details, other.token_details, strict=True):
        assert ours.logprob == pytest.approx(theirs.logprob, abs=tolerance)
        assert ours.masked_logprob == pytest.approx(theirs.masked_logprob, abs=tolerance)
        by_rank = [logprob for _, logprob in ours.top]
        assert by_rank == pytest.approx([logprob for _, logprob in theirs.top], abs=tolerance)
