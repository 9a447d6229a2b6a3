"""Sampled through the whole engine, output is distributed as the masked target alone writes it.

The exact distribution over whole outputs is enumerated. With N independent samples and m outcomes
Hoeffding's inequality and a union bound give P(any |frequency - p| >= eps) <= 2 m exp(-2 N eps^2);
eps is chosen so that this is 1e-6, and the seeds are fixed besides.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch

from structspec import Grammar, GrammarCompiler, Regex
from structspec.config import EngineConfig, SpeculativeConfig
from structspec.constraint import Constraint
from structspec.engine.batch import Batch, Draft, guessed
from structspec.grammars.base import CompiledGrammar
from structspec.masking import Masker
from tests.engine.coupled import HopefulPace
from tests.engine.toy import STOP, VOCABULARY, RandomDrafter, ToyEngine, hashed_logits

NUM_SAMPLES = 3000
MAX_TOKENS = 4
PROMPT = (0, 2)
CONSTRAINTS = {
    "free": None,
    "regex": Regex("(a|b)c?(ab|b)*"),
    "cfg": Grammar('start: "a" start "b" | "c"', "lark"),
}


def allowed_tokens(compiled: CompiledGrammar | None, written: Sequence[int]) -> list[int]:
    if compiled is None:
        return list(range(VOCABULARY.vocab_size))
    matcher = compiled.matcher()
    assert all(matcher.accept(token_id) for token_id in written)
    bitmask = np.zeros((1, VOCABULARY.num_words), np.int32)
    matcher.fill(bitmask, 0)
    return [token_id for token_id in range(VOCABULARY.vocab_size) if bitmask[0, 0] >> token_id & 1]


def exact_outputs(
    compiled: CompiledGrammar | None, temperature: float, written: tuple[int, ...] = ()
) -> Iterator[tuple[tuple[int, ...], float]]:
    """Every output of at most MAX_TOKENS tokens with its probability under the masked target."""
    if len(written) == MAX_TOKENS or written[-1:] == (STOP,):
        yield written, 1.0
        return
    allowed = allowed_tokens(compiled, written)
    logits = torch.tensor(hashed_logits((*PROMPT, *written)), dtype=torch.float64)
    probs = (logits[allowed] / temperature).softmax(0).tolist()
    for token_id, p in zip(allowed, probs, strict=True):
        for output, rest in exact_outputs(compiled, temperature, (*written, token_id)):
            yield output, p * rest


def other_logits(context: tuple[int, ...]) -> list[float]:
    """A drafter's opinion: related to the target's, but not the same."""
    mixed = zip(hashed_logits(context), hashed_logits((*context, 9)), strict=True)
    return [0.5 * a + 0.7 * b for a, b in mixed]


def worst_deviation(
    kind: str, drafter: RandomDrafter, temperature: float, **parts: object
) -> tuple[float, float]:
    """How far the frequencies are from the exact distribution at most, and the bound eps."""
    constraint: Constraint | None = CONSTRAINTS[kind]
    compiler = GrammarCompiler(VOCABULARY)
    config = EngineConfig(
        block_size=2,
        num_blocks=400,
        max_num_requests=64,
        speculative=SpeculativeConfig(num_speculative_tokens=3),
    )
    toy = ToyEngine(config, drafter, masker=Masker(VOCABULARY), **parts)
    compiled = compiler.submit(constraint) if constraint is not None else None
    exact = dict(exact_outputs(compiled.result() if compiled else None, temperature))
    assert math.isclose(sum(exact.values()), 1.0) and len(exact) > 3

    requests = [
        toy.add(PROMPT, max_tokens=MAX_TOKENS, temperature=temperature, seed=i, compiled=compiled)
        for i in range(NUM_SAMPLES)
    ]
    toy.run(requests)
    compiler.close()
    assert all(request.error is None for request in requests)
    assert sum(request.stats.num_accepted for request in requests) > NUM_SAMPLES / 10

    counts = Counter(tuple(request.output_token_ids) for request in requests)
    assert set(counts) <= set(exact)
    eps = math.sqrt(math.log(2 * len(exact) / 1e-6) / (2 * NUM_SAMPLES))
    return max(abs(counts[output] / NUM_SAMPLES - p) for output, p in exact.items()), eps


@pytest.mark.parametrize("kind", CONSTRAINTS)
@pytest.mark.parametrize("drafter", ["one-hot", "probabilistic"])
@pytest.mark.parametrize("temperature", [0.7, 1.5])
def test_outputs_are_distributed_as_the_masked_target_writes_them(kind, drafter, temperature):
    conditional = other_logits if drafter == "probabilistic" else None
    worst, eps = worst_deviation(kind, RandomDrafter(7, conditional), temperature)
    assert worst < eps


def test_so_they_are_where_the_grammar_is_asked_after_the_draw():
    worst, eps = worst_deviation("cfg", RandomDrafter(7), 1.0, pace=HopefulPace(), runs_ahead=True)
    assert worst < eps


def test_a_drafter_that_is_wrong_about_its_own_distribution_is_found_out():
    class Liar(RandomDrafter):
        def propose(self, batch: Batch) -> Draft:
            draft = super().propose(batch)
            tiny = [None if q is None else q * 0.01 for q in draft.probs]  # accept nearly all
            return guessed(draft.token_ids, tiny)

    worst, eps = worst_deviation(
        "regex", Liar(7, lambda context: hashed_logits((*context, 5))), 0.7
    )
    assert worst > eps
