"""A step for which the device's memory does not suffice: its requests lose time, and no token."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.config import SpeculativeConfig
from structspec.drafters.forced import ForcedDrafter
from structspec.drafters.hybrid import HybridDrafter
from structspec.engine.batch import Batch
from structspec.engine.pace import Pace
from structspec.errors import EngineError
from structspec.grammars.base import MatcherFailed
from structspec.request import Request
from tests.engine.test_running_ahead_laws import ASKS, DRAFTERS
from tests.engine.toy import VOCABULARY
from tests.engine.toy_grammar import CertainMatcher, ToyGrammar, ready
from tests.engine.watched import LONG, NEVER_WAITS, Ask, Watched, make_config

STAGES = ["forward", "sample"]
ERRORS = [
    torch.OutOfMemoryError("Tried to allocate 9 GiB."),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("Triton Error [CUDA]: out of memory"),
]


def run_out(
    watched: Watched,
    stage: str,
    is_too_much: Callable[[Batch], bool],
    error: Exception = ERRORS[0],
) -> None:
    """Have a stage of the steps fail whose batch `is_too_much`."""
    runner, engine = watched.toy.runner, watched.toy.engine
    forward, sampler = runner.forward, engine._sampler

    def check(now: str, batch: Batch) -> None:
        if now == stage and is_too_much(batch):
            raise error

    def tight_forward(batch: Batch, *rest: object) -> torch.Tensor:
        check("forward", batch)
        return forward(batch, *rest)

    def tight_sampler(logits: torch.Tensor, batch: Batch, *rest: object) -> object:
        check("sample", batch)
        return sampler(logits, batch, *rest)

    runner.forward, engine._sampler = tight_forward, tight_sampler


def samples(request: Request) -> Callable[[Batch], bool]:
    return lambda batch: any(
        scheduled.request is request and scheduled.is_sampled for scheduled in batch.requests
    )


@settings(max_examples=150, deadline=None)
@given(
    asks=st.lists(ASKS, min_size=1, max_size=6),
    stage=st.sampled_from(STAGES),
    failing=st.sets(st.integers(0, 14), min_size=1),
    num_tokens=st.integers(24, 60),
    budget=st.integers(2, 24),
    keeps_prefixes=st.booleans(),
    runs_ahead=st.booleans(),
    share=st.sampled_from([0.0, 0.25, 1.0]),
    kind=st.sampled_from(sorted(DRAFTERS)),
    seed=st.integers(0, 1000),
)
def test_failures_with_a_good_step_between_cost_nobody_a_token(
    asks, stage, failing, num_tokens, budget, keeps_prefixes, runs_ahead, share, kind, seed
):
    config = make_config(
        num_blocks=-(-num_tokens // 2),
        max_num_batched_tokens=budget,
        enable_prefix_caching=keeps_prefixes,
    )
    watched = Watched(config, DRAFTERS[kind](seed), pace=Pace(share), runs_ahead=runs_ahead)
    calls = iter(range(10_000))
    run_out(watched, stage, lambda batch: next(calls) in {2 * call for call in failing})
    requests = [watched.start(ask) for ask in asks]
    watched.run()
    assert watched.toy.block_manager.num_free_blocks == config.num_blocks
    for ask, request in zip(asks, requests, strict=True):
        ask.check(request)


@settings(max_examples=100, deadline=None)
@given(
    asks=st.lists(ASKS, min_size=1, max_size=6),
    stage=st.sampled_from(STAGES),
    capacity=st.integers(1, 20),
    runs_ahead=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_what_fits_into_half_a_step_is_written(asks, stage, capacity, runs_ahead, seed):
    config = make_config(max_num_batched_tokens=16)
    watched = Watched(config, DRAFTERS["restless"](seed), runs_ahead=runs_ahead)
    run_out(watched, stage, lambda batch: batch.num_tokens > capacity)
    requests = [watched.start(ask) for ask in asks]
    watched.run()
    for ask, request in zip(asks, requests, strict=True):
        if request.finish_reason == "error":
            assert isinstance(request.error, EngineError)
            assert capacity < 8
        else:
            ask.check(request)


@pytest.mark.parametrize("runs_ahead", [False, True], ids=["waits", "runs-ahead"])
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("prompt_length", [1, 3, 9, 60], ids="prompt-{}".format)
def test_a_request_that_never_fits_fails_alone(prompt_length, stage, runs_ahead, caplog):
    """Though parts of its prompt do fit."""
    config = make_config(max_num_batched_tokens=8, enable_prefix_caching=False)
    watched = Watched(config, runs_ahead=runs_ahead)
    asks = [Ask((token, 1), max_tokens=6) for token in range(2)]
    big = watched.start(Ask((2,) * prompt_length))
    run_out(watched, stage, samples(big))
    others = [watched.start(ask) for ask in asks]
    watched.run()
    assert isinstance(big.error, EngineError) and "9 GiB" in str(big.error)
    assert "memory ran out" in caplog.text
    for ask, request in zip(asks, others, strict=True):
        ask.check(request)


@pytest.mark.parametrize("error", ERRORS, ids=["torch", "cublas", "driver"])
def test_a_step_that_runs_out_behind_one_that_runs_leaves_that_one_alone(error):
    for stage in STAGES:
        watched = Watched(drafter=ForcedDrafter(VOCABULARY), pace=NEVER_WAITS)
        steps = iter(range(1000))
        run_out(watched, stage, lambda batch: next(steps) == 1, error)  # noqa: B023 - called here
        asks = [LONG, Ask(texts=("cb" * 20,), max_tokens=20)]
        requests = [watched.start(ask) for ask in asks]
        watched.step()
        assert [request.num_pending > 0 for request in requests] == [True, True]
        watched.run()
        for ask, request in zip(asks, requests, strict=True):
            ask.check(request)
            assert request.stats.num_preemptions == 1


def test_a_request_whose_matcher_failed_in_a_step_that_runs_out_is_told():
    class Failing(CertainMatcher):
        def fill(self, *arguments):
            raise MatcherFailed("limit reached")

    texts = ("cb" * 6,)
    watched = Watched(drafter=HybridDrafter(VOCABULARY, SpeculativeConfig()), pace=NEVER_WAITS)
    bad = watched.start(Ask(texts=texts), ready(ToyGrammar(texts, Failing)))
    good = watched.start(LONG)
    run_out(watched, "sample", lambda batch: bad.error is not None and not bad.is_finished)
    watched.run()
    assert str(bad.error) == "the grammar failed: limit reached"
    LONG.check(good)
