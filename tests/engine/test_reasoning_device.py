"""Reasoning on a GPU's parts, run on the CPU: asked before or after, the same tokens."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path

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
from structspec.engine.pace import Pace
from structspec.engine.scheduler import Scheduler
from structspec.grammars.base import CompiledGrammar
from structspec.masking import Masker
from structspec.models import LoadedModel, load_model
from structspec.reasoning_boundary import BEFORE, REASONING, Boundary, State
from structspec.reasoning_matcher import ReasoningBound
from structspec.reasoning_progress import ReasoningProgress
from structspec.request import Request, SamplingParams
from tests.engine.coupled import FicklePace
from tests.models.reference import save_tiny_model

MAX_LEN = 64


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Products this small only wait for a second thread."""
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
def grammars(loaded: LoadedModel) -> Iterator[Sequence[CompiledGrammar | None]]:
    compiler = GrammarCompiler(loaded.tokenizer.vocabulary)
    constraints = (Regex("[a-c]{3,9}x"), Choice(["hello, world", "hello there"]))
    yield [None, *(compiler.submit(constraint).result() for constraint in constraints)]
    compiler.close()


def make_requests(
    source: random.Random, boundary: Boundary, grammars: Sequence[CompiledGrammar | None]
) -> list[Request]:
    requests = []
    for index in range(source.choice([1, 3, 7])):
        prompt = [source.randrange(256) for _ in range(source.choice([1, 5, 24]))]
        params = SamplingParams(
            temperature=source.choice([0.0, 0.7, 1.5]),
            top_k=source.choice([0, 0, 0, 5]),
            stop=source.choice([(), ("a", "bb")]),
            seed=source.randrange(100),
            speculative=source.random() < 0.8,
        )
        max_tokens = min(source.choice([3, 20, MAX_LEN]), MAX_LEN - len(prompt))
        grammar = source.choice(grammars)
        compiled: Future[CompiledGrammar] | None = None
        if grammar is not None:
            compiled = Future()
            compiled.set_result(grammar)
        initial = source.choice([State(REASONING), State(BEFORE)])
        limit = source.choice([None, 0, 3, 9])
        bound = ReasoningBound(
            boundary, initial, max_tokens, limit, is_required=source.random() < 0.3
        )
        progress = ReasoningProgress(boundary, initial)
        requests.append(Request(index, prompt, params, max_tokens, compiled, (bound,), progress))
    return requests


def write(
    loaded: LoadedModel,
    config: EngineConfig,
    grammars: Sequence[CompiledGrammar | None],
    seed: int,
    *,
    is_fickle: bool,
) -> list[Request]:
    parts = build._device_parts(loaded, config)
    vocabulary = loaded.tokenizer.vocabulary
    scheduler = Scheduler(
        config,
        BlockManager(parts.num_blocks, config.block_size),
        vocabulary,
        MAX_LEN,
        draws_early=is_fickle,
    )
    engine = Engine(
        scheduler,
        HybridDrafter(vocabulary, config.speculative),
        parts.runner,
        Masker(vocabulary),
        parts.sampler,
        runs_ahead=True,
        pace=FicklePace(1.0, seed) if is_fickle else Pace(),
    )
    boundary = Boundary(vocabulary, "b", "aa", line_breaks=1)
    requests = make_requests(random.Random(seed), boundary, grammars)
    for request in requests:
        scheduler.add(request)
    for _ in range(3000):
        engine.step()
        if engine.is_idle:
            break
    return requests


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 2**32), num_drafts=st.sampled_from([0, 4, 30]))
def test_asking_afterwards_and_drafting_change_no_token(
    loaded: LoadedModel, grammars: Sequence[CompiledGrammar | None], seed: int, num_drafts: int
) -> None:
    both = []
    for is_fickle, num_tokens in ((False, 0), (True, num_drafts)):
        config = EngineConfig(
            block_size=4,
            num_blocks=3 * MAX_LEN // 4,
            max_num_requests=4,
            max_num_batched_tokens=33,
            enforce_eager=True,
            speculative=SpeculativeConfig(num_speculative_tokens=num_tokens),
        ).resolved("cpu")
        both.append(write(loaded, config, grammars, seed, is_fickle=is_fickle))
    for plain, other in zip(*both, strict=True):
        assert plain.error is None and other.error is None
        assert plain.output_token_ids == other.output_token_ids
        assert plain.reasoning.text.text == other.reasoning.text.text
        assert plain.text.text == other.text.text
        assert plain.stats.constraint_start == other.stats.constraint_start
