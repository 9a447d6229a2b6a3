"""At temperature 0 in float32, speculation and batching change no token of a real model."""

import pytest

from structspec import LLM
from structspec.errors import Truncated
from tests.lossless_pairs import lossless_pairs
from tests.real_requests import run_alone, run_together

MAX_TOKENS = 32
PAIRS = lossless_pairs()


@pytest.fixture(scope="module")
def plain(llm: LLM) -> list[tuple[int, ...]]:
    """What the target writes token by token, each request alone."""
    requests = run_alone(llm, PAIRS, max_tokens=MAX_TOKENS, temperature=0, speculative=False)
    return [tuple(request.output_token_ids) for request in requests]


def test_there_are_at_least_sixty_pairs_of_every_kind():
    kinds = {kind for _, options in PAIRS for kind in options}
    assert len(PAIRS) >= 60
    assert {"schema", "regex", "choices", "grammar"} <= kinds


@pytest.mark.parametrize("is_batched", [False, True], ids=["alone", "batched"])
def test_speculation_writes_the_same_tokens(
    llm: LLM, plain: list[tuple[int, ...]], is_batched: bool
):
    run = run_together if is_batched else run_alone
    requests = run(llm, PAIRS, max_tokens=MAX_TOKENS, temperature=0)
    assert all(request.error is None for request in requests)
    different = [
        (prompt, options, expected, request.output_token_ids)
        for (prompt, options), expected, request in zip(PAIRS, plain, requests, strict=True)
        if tuple(request.output_token_ids) != expected
    ]
    assert not different
    assert sum(request.stats.num_accepted for request in requests) > 500  # it did speculate


def test_batching_without_speculation_writes_the_same_tokens(
    llm: LLM, plain: list[tuple[int, ...]]
):
    requests = run_together(llm, PAIRS, max_tokens=MAX_TOKENS, temperature=0, speculative=False)
    assert [tuple(request.output_token_ids) for request in requests] == plain


def test_finished_output_conforms_to_its_constraint(llm: LLM):
    for prompt, options in PAIRS:
        results = llm.generate_raw([prompt], **options, max_tokens=MAX_TOKENS, return_errors=True)
        assert not isinstance(results[0], Exception) or isinstance(results[0], Truncated)
