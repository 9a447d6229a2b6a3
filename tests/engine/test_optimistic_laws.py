"""The same tokens whether grammars are asked before each draw or after it, drawn or greedy.

Whole engines of the GPU's parts, run on the CPU, with matchers of several libraries in one batch,
limits such as top-k and bad words, grammars that come late, and preemptions.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from structspec import Choice, GrammarCompiler, JsonSchema, Regex
from structspec.config import EngineConfig, SpeculativeConfig
from structspec.drafters.hybrid import HybridDrafter
from structspec.engine import build
from structspec.engine.block_manager import BlockManager
from structspec.engine.engine import Engine
from structspec.engine.pace import Pace
from structspec.engine.scheduler import Scheduler
from structspec.errors import NothingAllowed
from structspec.grammars.base import CompiledGrammar
from structspec.limits import Limiter
from structspec.masking import Masker
from structspec.models import LoadedModel, load_model
from structspec.request import Request, RequestStatus, SamplingParams
from tests.engine.coupled import FicklePace
from tests.models.reference import save_tiny_model

MAX_LEN = 64
PAIR = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "yz"]}},
    "required": ["a", "b"],
}


LIMITS: Sequence[dict[str, Any]] = (
    {"allowed_token_ids": (*range(90, 123), 256)},
    {"bad_words": ("ab", "l", '"a')},
    {"min_tokens": 7},
    {"stop_token_ids": (98, 120)},
    {"stop_token_ids": (98,), "min_tokens": 2, "bad_words": ("cc",), "ignore_eos": True},
)


EDITS: Sequence[dict[str, Any]] = (
    {"logit_bias": ((97, 3.0), (120, 2.0), (34, -5.0))},
    {"presence_penalty": 1.5, "frequency_penalty": 0.3, "repetition_penalty": 1.2},
    {"logprobs": 2, "logprobs_mode": "processed", "frequency_penalty": -0.5},
)


class Plan(NamedTuple):
    """A request, and when it and its grammar arrive."""

    prompt: Sequence[int]
    params: SamplingParams
    max_tokens: int
    grammar: CompiledGrammar | None
    arrives: int
    compiled_after: int


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Products this small only wait for a second thread, long where the cores are busy."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder: Path = tmp_path_factory.mktemp("tiny")
    save_tiny_model(folder, "qwen2", vocab_size=287, num_attention_heads=7, num_key_value_heads=1,
                    hidden_size=56, max_position_embeddings=MAX_LEN)  # fmt: skip
    return load_model(folder)


@pytest.fixture(scope="module")
def grammars(loaded: LoadedModel) -> Iterator[Sequence[CompiledGrammar]]:
    vocabulary = loaded.tokenizer.vocabulary
    compilers = [GrammarCompiler(vocabulary, backend=name) for name in ("llguidance", "xgrammar")]
    constraints = (
        Regex("[a-c]{3,9}x"),
        Regex("[a-z ]{1,40}"),  # with a wide row
        Choice(["hello, world", "hello there"]),
        JsonSchema(PAIR),
    )
    yield [
        compiler.submit(constraint).result() for compiler in compilers for constraint in constraints
    ]
    for compiler in compilers:
        compiler.close()


def make_plans(source: random.Random, grammars: Sequence[CompiledGrammar]) -> list[Plan]:
    beginning = [source.randrange(256) for _ in range(24)]
    plans = []
    for _ in range(source.choice([2, 5, 12])):  # of so many, the library's threads are asked
        prompt = source.choice([beginning, [97, 98] * 12])[: source.choice([1, 5, 24])]
        params = SamplingParams(
            temperature=source.choice([0.0, 0.7, 1.5]),
            top_k=source.choice([0, 0, 0, 0, 5]),
            top_p=source.choice([1.0, 1.0, 1.0, 0.9]),
            stop=source.choice([(), (), ("a", "bb")]),
            seed=source.randrange(100),
            speculative=source.random() < 0.8,
            **source.choice([{}, {}, *LIMITS]),
            **source.choice([{}, {}, {}, *EDITS]),
        )
        max_tokens = min(source.choice([1, 3, 20, MAX_LEN]), MAX_LEN - len(prompt))
        grammar = source.choice([None, *grammars, *grammars])
        when = source.randrange(6), source.randrange(6)
        plans.append(Plan(prompt, params, max_tokens, grammar, *when))
    return plans


def write(
    loaded: LoadedModel, config: EngineConfig, plans: Sequence[Plan], seed: int | None
) -> list[Request]:
    """What is written where masks come first, or with a seed where all changes all the time."""
    source = random.Random(seed)
    is_optimistic = seed is not None
    parts = build._device_parts(loaded, config)
    vocabulary = loaded.tokenizer.vocabulary
    blocks = BlockManager(parts.num_blocks, config.block_size)
    scheduler = Scheduler(config, blocks, vocabulary, MAX_LEN, draws_early=is_optimistic)
    engine = Engine(
        scheduler,
        # with a seed there is now time to walk requests, and now none
        HybridDrafter(
            vocabulary,
            config.speculative,
            None if seed is None else lambda _: source.choice([0.0, 1e9]),
        ),
        parts.runner,
        Masker(vocabulary),
        parts.sampler,
        runs_ahead=True,
        pace=FicklePace(source.choice([0.0, 0.25, 1.0]), seed) if seed is not None else Pace(),
    )
    limiter = Limiter(vocabulary)
    requests = [
        Request(
            index,
            plan.prompt,
            plan.params,
            plan.max_tokens,
            plan.grammar and Future(),
            limiter.limit(plan.params, is_constrained=plan.grammar is not None),
        )
        for index, plan in enumerate(plans)
    ]
    for moment in range(3000):
        for request, plan in zip(requests, plans, strict=True):
            if moment == plan.arrives:
                scheduler.add(request)
            if request.compiled is not None and moment == plan.arrives + plan.compiled_after:
                request.compiled.set_result(plan.grammar)
            is_running = request.status is RequestStatus.RUNNING
            if is_optimistic and is_running and source.random() < 0.01:
                scheduler.preempt(request)
        engine.step()
        if moment > 12 and engine.is_idle:
            break
    assert blocks.num_free_blocks == blocks.num_blocks
    return requests


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    seed=st.integers(0, 2**32),
    block_size=st.sampled_from([1, 3, 16]),
    max_num_requests=st.sampled_from([1, 4, 16]),
    budget=st.sampled_from([7, 33, 600]),
    num_drafts=st.sampled_from([0, 4, 30]),
)
def test_asking_afterwards_changes_no_token(
    loaded: LoadedModel,
    grammars: Sequence[CompiledGrammar],
    seed: int,
    block_size: int,
    max_num_requests: int,
    budget: int,
    num_drafts: int,
) -> None:
    config = EngineConfig(
        block_size=block_size,
        num_blocks=-(-3 * MAX_LEN // block_size),
        max_num_requests=max_num_requests,
        max_num_batched_tokens=budget,
        enforce_eager=True,
        speculative=SpeculativeConfig(num_speculative_tokens=num_drafts),
    ).resolved("cpu")
    plans = make_plans(random.Random(seed), grammars)
    before, after = (write(loaded, config, plans, how) for how in (None, seed))
    for one, other in zip(after, before, strict=True):
        if isinstance(other.error, NothingAllowed):
            assert isinstance(one.error, NothingAllowed)
            assert one.output_token_ids == other.output_token_ids
            continue
        assert one.error is None and other.error is None
        assert one.output_token_ids == other.output_token_ids
        if one.params.logprobs is not None:
            assert [told.token_id for told in one.logprobs] == one.output_token_ids
            ours, theirs = ([told.logprob for told in each.logprobs] for each in (one, other))
            assert ours == pytest.approx(theirs, abs=1e-3)
        assert (one.finish_reason, one.text.text) == (other.finish_reason, other.text.text)
        stats = one.stats
        assert sum(stats.accepted_per_position) == stats.num_accepted <= stats.num_drafted
        assert stats.num_target_steps <= one.num_output_tokens
        assert other.stats.num_refused == 0
