"""A GPU's parts, run on the CPU, edit logits and tell logprobs as the plain engine does."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from structspec.config import EngineConfig
from structspec.models import LoadedModel
from structspec.request import Request, SamplingParams
from structspec.token_logprob import TokenLogprob
from tests.engine.test_device_engine import (
    MAX_LEN,
    Grammars,
    configs,
    grammars,
    loaded,
    run,
)
from tests.engine.test_optimistic_laws import one_thread

__all__ = ["grammars", "loaded", "one_thread"]  # fixtures

EDITS = (
    {},
    {},
    {"logit_bias": ((97, 4.0), (98, 3.0), (256, -2.0))},
    {"presence_penalty": 1.5, "frequency_penalty": 0.5},
    {"repetition_penalty": 1.3},
)


def make_requests(source: random.Random, grammars: Grammars) -> list[Request]:
    requests = []
    for index in range(source.randint(2, 5)):
        prompt = [source.choice([97, 98, 120]) for _ in range(source.choice([1, 5, 24, 60]))]
        params = SamplingParams(
            ignore_eos=source.random() < 0.5,
            logprobs=source.choice([None, 0, 3]),
            logprobs_mode=source.choice(["raw", "processed"]),
            prompt_logprobs=source.choice([None, None, 2]),
            speculative=source.random() < 0.8,
            **source.choice(EDITS),
        )
        max_tokens = min(source.choice([1, 20]), MAX_LEN - len(prompt))
        requests.append(Request(index, prompt, params, max_tokens, source.choice(grammars)))
    return requests


def numbers(logprobs: Sequence[TokenLogprob]) -> list[float]:
    return [x for one in logprobs for x in (one.logprob, *(top for _, top in one.top))]


@settings(
    max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(config=configs(), seed=st.integers(0, 2**32), share=st.sampled_from([0.0, 0.25, 1.0]))
def test_any_engine_writes_and_tells_what_the_plain_one_does(
    loaded: LoadedModel,
    grammars: Grammars,
    config: EngineConfig,
    seed: int,
    share: float,
) -> None:
    expected, actual = (make_requests(random.Random(seed), grammars) for _ in range(2))
    run(loaded, config, expected)
    run(loaded, config, actual, share=share)
    for one, other in zip(actual, expected, strict=True):
        assert one.output_token_ids == other.output_token_ids
        params = one.params
        written = one.output_token_ids if params.logprobs is not None else []
        read = one.prompt_token_ids[1:] if params.prompt_logprobs is not None else []
        for ours, theirs, tokens in (
            (one.logprobs, other.logprobs, written),
            (one.prompt_logprobs, other.prompt_logprobs, read),
        ):
            assert [each.token_id for each in ours] == list(tokens)
            assert [each.token_id for each in theirs] == list(tokens)
            assert numbers(ours) == pytest.approx(numbers(theirs), abs=1e-3)
