"""Whole engines of the GPU's parts, run on the CPU, write what the plain engine writes.

Whatever the sizes: blocks of any length, steps of one token, one request at a time, no drafts or
very long ones, a cache with room for hardly more than one request; also where steps run out of
memory, before or behind their work.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from structspec import Choice, GrammarCompiler, Regex
from structspec.config import EngineConfig, SpeculativeConfig
from structspec.drafters.hybrid import HybridDrafter
from structspec.engine import build
from structspec.engine.block_manager import BlockManager
from structspec.engine.engine import Engine
from structspec.engine.scheduler import Scheduler
from structspec.grammars.base import CompiledGrammar
from structspec.limits import Limiter
from structspec.masking import Masker
from structspec.models import LoadedModel, load_model
from structspec.request import Request, SamplingParams
from tests.engine.coupled import FicklePace
from tests.models.reference import save_tiny_model

MAX_LEN = 64
Grammars = list["Future[CompiledGrammar] | None"]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder: Path = tmp_path_factory.mktemp("tiny")
    save_tiny_model(folder, "qwen2", vocab_size=287, num_attention_heads=7, num_key_value_heads=1,
                    hidden_size=56, max_position_embeddings=MAX_LEN)  # fmt: skip
    return load_model(folder)


@pytest.fixture(scope="module")
def grammars(loaded: LoadedModel) -> Iterator[Grammars]:
    constraints = (
        Regex("[a-c]{3,9}x"),
        Regex("(ab|ba){2,30}"),
        Choice(["hello, world", "hello there"]),
    )
    compiler = GrammarCompiler(loaded.tokenizer.vocabulary)
    compiled = [compiler.submit(constraint) for constraint in constraints]
    assert all(future.result().wide_row is not None for future in compiled)
    yield [None, None, *compiled]
    compiler.close()


@st.composite
def configs(draw: st.DrawFn) -> EngineConfig:
    block_size = draw(st.sampled_from([1, 3, 5, 16, 64]))
    return EngineConfig(
        block_size=block_size,
        num_blocks=-(-MAX_LEN // block_size) + draw(st.integers(0, 3)),
        max_num_requests=draw(st.sampled_from([1, 2, 5, 16])),
        max_num_batched_tokens=draw(st.sampled_from([7, 33, 600])),
        max_num_draft_tokens=draw(st.sampled_from([0, 3, 64])),
        enable_prefix_caching=draw(st.booleans()),
        enforce_eager=True,
        speculative=SpeculativeConfig(num_speculative_tokens=draw(st.sampled_from([0, 4, 63]))),
    ).resolved("cpu")


def make_requests(source: random.Random, grammars: Grammars, limiter: Limiter) -> list[Request]:
    beginning = [source.randrange(256) for _ in range(30)]
    requests = []
    for index in range(source.randint(2, 6)):
        prompt = source.choice([beginning, [97, 98] * 30])[: source.choice([1, 5, 24, 30])]
        prompt += [source.randrange(256) for _ in range(source.choice([0, 1, 33]))]
        max_tokens = min(source.choice([1, 20, MAX_LEN]), MAX_LEN - len(prompt))
        stop = source.choice([(), (), ("a", "bb")])
        limits = source.choice([{}, {}, {"min_tokens": 9, "stop_token_ids": (7, 120)}])
        params = SamplingParams(ignore_eos=source.random() < 0.7, stop=stop, **limits)
        grammar = source.choice(grammars)
        wrappers = limiter.limit(params, is_constrained=grammar is not None)
        requests.append(Request(index, prompt, params, max_tokens, grammar, wrappers))
    return requests


def run(
    loaded: LoadedModel,
    config: EngineConfig,
    requests: Sequence[Request],
    *,
    share: float | None = None,  # with it, the GPU's parts run ahead; max_share_aside of its pace
    faults: random.Random | None = None,
) -> None:
    make_parts = build._cpu_parts if share is None else build._device_parts
    parts = make_parts(loaded, config)
    vocabulary = loaded.tokenizer.vocabulary
    blocks = BlockManager(
        parts.num_blocks, config.block_size, keeps_prefixes=config.enable_prefix_caching
    )
    scheduler = Scheduler(config, blocks, vocabulary, MAX_LEN)
    runner: Any = parts.runner
    sampler: Any = parts.sampler
    if faults is not None:
        seldom = Seldom(faults)
        runner = SimpleNamespace(forward=seldom.failing(runner.forward))
        sampler = seldom.failing(sampler)
    engine = Engine(
        scheduler,
        HybridDrafter(vocabulary, config.speculative),
        runner,
        Masker(vocabulary),
        sampler,
        runs_ahead=share is not None,
        pace=None if share is None else FicklePace(share, len(requests)),
    )
    for request in requests:
        scheduler.add(request)
    for _ in range(5000):
        engine.step()
        if engine.is_idle:
            break
    assert all(request.error is None and request.is_finished for request in requests)
    assert blocks.num_free_blocks == blocks.num_blocks


class Seldom:
    """Memory runs out three times, with many calls in between: giving up is tested elsewhere."""

    def __init__(self, source: random.Random) -> None:
        self._source = source
        self._failing = {source.randint(20, 40) + 60 * index for index in range(3)}
        self._num_calls = 0

    def failing(self, work: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            self._num_calls += 1
            fails = self._num_calls in self._failing
            if not fails or self._source.random() < 0.5:
                result = work(*args)
            if fails:
                raise torch.OutOfMemoryError("no room")
            return result

        return call


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    config=configs(),
    seed=st.integers(0, 2**32),
    share=st.sampled_from([0.0, 0.25, 1.0]),
    fails=st.booleans(),
)
def test_any_engine_writes_what_the_plain_one_writes(
    loaded: LoadedModel,
    grammars: Grammars,
    config: EngineConfig,
    seed: int,
    share: float,
    fails: bool,
) -> None:
    limiter = Limiter(loaded.tokenizer.vocabulary)
    expected, actual = (make_requests(random.Random(seed), grammars, limiter) for _ in range(2))
    run(loaded, config, expected)
    run(loaded, config, actual, share=share, faults=random.Random(seed) if fails else None)
    for one, other in zip(actual, expected, strict=True):
        assert one.output_token_ids == other.output_token_ids
        assert one.finish_reason == other.finish_reason
        stats = one.stats
        assert sum(stats.drafted_per_position) == stats.num_drafted
        assert sum(stats.accepted_per_position) == stats.num_accepted <= stats.num_drafted
        assert stats.num_target_steps <= one.num_output_tokens
        assert stats.first_token_s is not None
