"""Whole engines of the GPU's parts, run on the CPU, by each method of verification.

Requests of all kinds, masked first or asked afterwards as it comes: see test_optimistic_laws.py.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from structspec.config import EngineConfig, SpeculativeConfig
from structspec.grammars.base import CompiledGrammar
from structspec.models import LoadedModel
from structspec.request import SamplingParams
from tests.engine import test_optimistic_laws as optimistic
from tests.engine.test_optimistic_laws import LIMITS, MAX_LEN, Plan, make_plans, write

loaded, grammars, one_thread = optimistic.loaded, optimistic.grammars, optimistic.one_thread
LOSSY = [
    {"rejection_sample_method": "synthetic", "synthetic_acceptance_rate": 0.7},
    {"rejection_sample_method": "synthetic", "synthetic_acceptance_rate": 1.0},
    {"rejection_sample_method": "fly", "fly_window_size": 1, "fly_entropy_threshold": 0.05},
]
DEFAULTS = {field.name: field.default for field in fields(SamplingParams)}
SOME = settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def engine_config(num_drafts: int = 6, **method: Any) -> EngineConfig:
    return EngineConfig(
        block_size=4,
        num_blocks=3 * MAX_LEN // 4,
        max_num_requests=4,
        max_num_batched_tokens=600,
        enforce_eager=True,
        speculative=SpeculativeConfig(method="hybrid", num_speculative_tokens=num_drafts, **method),
    ).resolved("cpu")


def unlimited_plans(source: random.Random, grammars: Sequence[CompiledGrammar]) -> list[Plan]:
    """Without limits of tokens, which may come to a dead end."""
    names = {name for limit in LIMITS for name in limit}
    return [
        plan._replace(params=replace(plan.params, **{name: DEFAULTS[name] for name in names}))
        for plan in make_plans(source, grammars)
    ]


def is_written(plan: Plan, token_ids: Sequence[int]) -> bool:
    """Whether the grammar takes all of it."""
    if plan.grammar is None:
        return True
    matcher = plan.grammar.matcher()
    return all(map(matcher.accept, token_ids))


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 2**32), method=st.sampled_from(LOSSY))
def test_what_is_not_the_targets_is_the_grammars_all_the_same(
    loaded: LoadedModel,
    grammars: Sequence[CompiledGrammar],
    seed: int,
    method: dict[str, Any],
) -> None:
    plans = unlimited_plans(random.Random(seed), grammars)
    requests = write(loaded, engine_config(**method), plans, seed)
    for plan, request in zip(plans, requests, strict=True):
        assert request.error is None
        assert is_written(plan, request.output_token_ids)


@settings(
    max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 2**32))
def test_blocks_write_what_is_written_without_them(
    loaded: LoadedModel, grammars: Sequence[CompiledGrammar], seed: int
) -> None:
    plans = unlimited_plans(random.Random(seed), grammars)
    block, standard = (
        write(loaded, engine_config(rejection_sample_method=method), plans, how)
        for method, how in (("block", seed), ("standard", None))
    )
    for one, other in zip(block, standard, strict=True):
        assert one.output_token_ids == other.output_token_ids


def test_all_drafts_stand_at_a_rate_of_one_unless_a_grammar_refuses_them(
    loaded: LoadedModel, grammars: Sequence[CompiledGrammar]
) -> None:
    method = {"rejection_sample_method": "synthetic", "synthetic_acceptance_rate": 1.0}
    source = random.Random(3)
    plans = [
        plan._replace(grammar=None)
        for _ in range(4)
        for plan in unlimited_plans(source, grammars)
        if plan.params.speculative
    ]
    requests = write(loaded, engine_config(**method), plans, None)
    drafted = sum(request.stats.num_drafted for request in requests)
    assert drafted > 20
    assert drafted == sum(request.stats.num_accepted for request in requests)
