"""Requests for the prompt of another, their leader, wait for it and keep nobody else waiting."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from structspec.config import EngineConfig, SpeculativeConfig
from structspec.masking import Masker
from structspec.request import Request
from tests.engine.toy import VOCABULARY, RandomDrafter, ToyEngine
from tests.engine.toy_grammar import ToyGrammar

PROMPT = (0, 1, 2, 0, 1, 2, 0)


def make_toy(num_free_tokens: int, **parts: object) -> ToyEngine:
    config = EngineConfig(
        block_size=2,
        num_blocks=100,
        max_num_requests=16,
        speculative=SpeculativeConfig(num_speculative_tokens=0),
    )
    return ToyEngine(
        config,
        RandomDrafter(1),
        masker=Masker(VOCABULARY),
        num_free_tokens=num_free_tokens,
        **parts,
    )


def follow(toy: ToyEngine, leader: Request, **params: object) -> Request:
    """Before a step is made."""
    follower = toy.add(leader.prompt_token_ids, **params)
    follower.leader = leader
    return follower


@pytest.mark.parametrize("num_free_tokens", [1, 16])
@pytest.mark.parametrize("draws_early", [False, True])
@pytest.mark.parametrize("logprobs", [None, 1])
def test_a_grammar_that_takes_long_keeps_nobody_behind_its_followers_waiting(
    logprobs: int | None, draws_early: bool, num_free_tokens: int
) -> None:
    toy = make_toy(num_free_tokens, draws_early=draws_early)
    compiled: Future = Future()
    leader = toy.add(PROMPT, compiled=compiled, logprobs=logprobs)
    follower = follow(toy, leader, compiled=compiled, logprobs=logprobs)
    other = toy.add((2, 1), max_tokens=4, ignore_eos=True)
    toy.run([other])
    compiled.set_result(ToyGrammar(("abc",)))
    toy.run([leader, follower])
    assert leader.text.text == follower.text.text == "abc"


def test_followers_find_the_prompt_computed() -> None:
    toy = make_toy(1)
    leader = toy.add(PROMPT, max_tokens=3)
    follower = follow(toy, leader, max_tokens=3)
    toy.run([leader, follower])
    assert (leader.stats.num_cached_tokens, follower.stats.num_cached_tokens) == (0, 6)
