"""At temperature 0 in float32, speculation and batching change no token of a real model."""

import pytest

from structspec import LLM
from structspec.errors import Truncated
from structspec.generation import to_generation
from structspec.options import resolve_options
from structspec.request import Request
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


@pytest.fixture(scope="module")
def alone(llm: LLM) -> list[Request]:
    """The same with speculation."""
    return run_alone(llm, PAIRS, max_tokens=MAX_TOKENS, temperature=0)


def assert_same_tokens(requests: list[Request], plain: list[tuple[int, ...]]) -> None:
    assert all(request.error is None for request in requests)
    different = [
        (prompt, options, expected, request.output_token_ids)
        for (prompt, options), expected, request in zip(PAIRS, plain, requests, strict=True)
        if tuple(request.output_token_ids) != expected
    ]
    assert not different


def test_speculation_alone_writes_the_same_tokens(
    alone: list[Request], plain: list[tuple[int, ...]]
):
    assert_same_tokens(alone, plain)
    assert sum(request.stats.num_accepted for request in alone) > 500


def test_speculation_in_a_batch_writes_the_same_tokens(llm: LLM, plain: list[tuple[int, ...]]):
    requests = run_together(llm, PAIRS, max_tokens=MAX_TOKENS, temperature=0)
    assert_same_tokens(requests, plain)
    assert sum(request.stats.num_accepted for request in requests) > 200


def test_batching_without_speculation_writes_the_same_tokens(
    llm: LLM, plain: list[tuple[int, ...]]
):
    requests = run_together(llm, PAIRS, max_tokens=MAX_TOKENS, temperature=0, speculative=False)
    assert_same_tokens(requests, plain)


def test_finished_output_conforms_to_its_constraint(llm: LLM, alone: list[Request]):
    num_values = 0
    for (_, options), request in zip(PAIRS, alone, strict=True):
        try:
            to_generation(request, resolve_options(options), llm._service.vocabulary)
            num_values += 1
        except Truncated:
            assert request.num_output_tokens == MAX_TOKENS or request.text.is_stopped
    assert num_values > len(PAIRS) / 3
