"""Under each limit output is distributed as the masked target alone writes it, drafts or none.

The exact distribution over whole outputs is enumerated, with the limits said by hand; the bound is
that of `test_engine_distribution`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch

from structspec import GrammarCompiler, NothingAllowed, Regex
from structspec.config import EngineConfig, SpeculativeConfig
from structspec.drafters.hybrid import HybridDrafter
from structspec.grammars.base import CompiledGrammar
from structspec.masking import Masker
from tests.engine.coupled import CoupledSampler, HopefulPace
from tests.engine.test_engine_distribution import MAX_TOKENS, PROMPT, allowed_tokens, other_logits
from tests.engine.toy import STOP, VOCABULARY, RandomDrafter, ToyEngine, hashed_logits
from tests.engine.toy_grammar import RestlessDrafter, ToyGrammar, ready

NUM_SAMPLES = 1500
A, B, C, AB = range(4)
GRAMMAR = Regex("[ab](c?[ab])*")  # none of the limits leaves a text of it no way on
LIMITS: dict[str, dict[str, Any]] = {
    "allowed tokens": {"allowed_token_ids": (A, C, AB, STOP)},
    "bad words": {"bad_words": ("ab", "cc", "bbb")},
    "min tokens": {"min_tokens": 3},
    "stop tokens": {"stop_token_ids": (C,)},
    "all at once": {
        "allowed_token_ids": (A, B, C, AB),
        "bad_words": ("ca",),
        "min_tokens": 2,
        "stop_token_ids": (C,),
    },
}


def limited(
    inner: Sequence[int], written: Sequence[int], limits: dict[str, Any], *, is_free: bool
) -> list[int]:
    """What may stand behind these tokens where a grammar allows `inner`."""
    ends = {STOP, *limits.get("stop_token_ids", ())}
    allowed = {*limits.get("allowed_token_ids", range(5))}
    text = [t for t in inner if t in allowed - ends]
    text = [
        t
        for t in text
        if not any(
            word.encode() in VOCABULARY.decode_bytes([*written, t])
            for word in limits.get("bad_words", ())
        )
    ]
    may_end = STOP in inner and not (text and len(written) < limits.get("min_tokens", 0))
    return text + [t for t in ends if may_end and (t in allowed or not is_free)]


def exact_outputs(
    compiled: CompiledGrammar | None, limits: dict[str, Any], written: tuple[int, ...] = ()
) -> Iterator[tuple[tuple[int, ...], float]]:
    """Every output of at most MAX_TOKENS tokens with its probability."""
    ends = {STOP, *limits.get("stop_token_ids", ())}
    if len(written) == MAX_TOKENS or ends & {*written}:
        yield written, 1.0
        return
    inner = allowed_tokens(compiled, written)
    allowed = limited(inner, written, limits, is_free=compiled is None)
    logits = torch.tensor(hashed_logits((*PROMPT, *written)), dtype=torch.float64)
    for token_id, p in zip(allowed, logits[allowed].softmax(0).tolist(), strict=True):
        for output, rest in exact_outputs(compiled, limits, (*written, token_id)):
            yield output, p * rest


def make_engine(drafter: RandomDrafter, **parts: Any) -> ToyEngine:
    config = EngineConfig(
        block_size=2,
        num_blocks=400,
        max_num_requests=64,
        speculative=SpeculativeConfig(num_speculative_tokens=3),
    )
    return ToyEngine(config, drafter, masker=Masker(VOCABULARY), **parts)


def check_distribution(is_constrained: bool, limits: dict[str, Any], toy: ToyEngine) -> None:
    compiler = GrammarCompiler(VOCABULARY)
    compiled = compiler.submit(GRAMMAR) if is_constrained else None
    exact = dict(exact_outputs(compiled.result() if compiled else None, limits))
    assert math.isclose(sum(exact.values()), 1.0) and len(exact) > 3
    requests = [
        toy.add(PROMPT, max_tokens=MAX_TOKENS, temperature=1.0, seed=i, compiled=compiled, **limits)
        for i in range(NUM_SAMPLES)
    ]
    toy.run(requests)
    compiler.close()
    assert all(request.error is None for request in requests)
    counts = Counter(tuple(request.output_token_ids) for request in requests)
    assert {*counts} <= {*exact}
    eps = math.sqrt(math.log(2 * len(exact) / 1e-6) / (2 * NUM_SAMPLES))
    assert max(abs(counts[output] / NUM_SAMPLES - p) for output, p in exact.items()) < eps


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("is_constrained", [False, True], ids=["free", "grammar"])
@pytest.mark.parametrize("drafter", ["one-hot", "probabilistic"])
def test_limited_outputs_are_distributed_as_the_masked_target_writes_them(
    drafter: str, is_constrained: bool, name: str
) -> None:
    conditional = other_logits if drafter == "probabilistic" else None
    check_distribution(is_constrained, LIMITS[name], make_engine(RandomDrafter(7, conditional)))


@pytest.mark.parametrize("is_constrained", [False, True], ids=["free", "grammar"])
def test_so_they_are_where_the_limits_are_looked_at_after_the_draw(is_constrained: bool) -> None:
    toy = make_engine(RandomDrafter(7), pace=HopefulPace(), runs_ahead=True)
    check_distribution(is_constrained, LIMITS["all at once"], toy)


@pytest.mark.parametrize("texts", [None, ("cbcba", "aacbc", "bcbcbc")], ids=["free", "grammar"])
@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_drafting_and_running_ahead_change_no_token(
    temperature: float, name: str, texts: tuple[str, ...] | None
) -> None:
    limits = {**LIMITS[name]}
    if texts is not None:  # these would leave none of so few texts
        limits.pop("allowed_token_ids", None)
        limits["stop_token_ids"] = ()
    written = []
    for parts in (
        {},
        {"runs_ahead": True, "sampler": CoupledSampler(2)},
        {"runs_ahead": True, "sampler": CoupledSampler(2), "pace": HopefulPace()},
    ):
        for is_speculative in (False, True):
            toy = make_engine(RandomDrafter(3), **parts)
            requests = [
                toy.add(
                    (0, i),
                    max_tokens=12,
                    temperature=temperature,
                    seed=i,
                    speculative=is_speculative,
                    compiled=None if texts is None else ready(ToyGrammar(texts)),
                    **limits,
                )
                for i in range(4)
            ]
            toy.run(requests)
            assert all(request.error is None for request in requests)
            written.append([request.output_token_ids for request in requests])
    assert written[0] == written[1] and all(other == written[2] for other in written[2:])
    if temperature == 0:
        assert written[0] == written[2]


@pytest.mark.parametrize("parts", [{}, {"runs_ahead": True, "pace": HopefulPace()}])
@pytest.mark.parametrize("is_speculative", [False, True])
def test_a_text_that_limits_leave_no_way_out_of_ends_with_an_error_that_names_them(
    is_speculative: bool, parts: dict[str, Any]
) -> None:
    toy = make_engine(RandomDrafter(3), **parts)
    lost = toy.add(
        PROMPT,
        bad_words=("bc",),
        speculative=is_speculative,
        compiled=ready(ToyGrammar(("abca",))),
    )
    other = toy.add(PROMPT, max_tokens=9, ignore_eos=True)
    toy.run([lost, other])
    assert isinstance(lost.error, NothingAllowed)
    assert "bad_words leave no token that may follow the first" in str(lost.error)
    assert lost.output_token_ids in ([], [A], [A, B], [AB])
    assert other.error is None and other.num_output_tokens == 9


@pytest.mark.parametrize("stop", [(), ("ac",), ("b",)])
@pytest.mark.parametrize("parts", [{}, {"runs_ahead": True}, {"runs_ahead": True, "pace": None}])
@pytest.mark.parametrize("texts", [("aacb",), ("aacb", "abacb", "cab")])
def test_what_stands_before_a_dead_end_counts_however_it_was_drafted(
    texts: tuple[str, ...], parts: dict[str, Any], stop: tuple[str, ...]
) -> None:
    """It is in the error, and where a stop string is in it there is none."""
    told = []
    for make_drafter in (lambda: RandomDrafter(3), lambda: RestlessDrafter(5)):
        for is_speculative in (False, True):
            pace = {"pace": HopefulPace()} if "pace" in parts else {}
            toy = make_engine(make_drafter(), **{**parts, **pace})
            requests = [
                toy.add(
                    (0, place),
                    stop=stop,
                    bad_words=("cb", "ba"),
                    speculative=is_speculative,
                    compiled=ready(ToyGrammar(texts)),
                )
                for place in range(4)
            ]
            toy.run(requests)
            told.append([(r.output_token_ids, r.text.text, r.finish_reason) for r in requests])
            assert all((r.stats.first_token_s or 0) >= 0 for r in requests)
    assert all(one == told[0] for one in told)
    if texts == ("aacb",):
        assert {one[1:] for one in told[0]} == {
            ("a", "stop") if stop == ("ac",) else ("aac", "error")
        }


def test_accepted_drafts_are_those_that_stand_in_the_output() -> None:
    """Of four certain tokens the stop string ends the text in the second."""
    toy = make_engine(HybridDrafter(VOCABULARY, SpeculativeConfig()))
    request = toy.add(PROMPT, stop=("bc",), compiled=ready(ToyGrammar(("bcca",))))
    toy.run([request])
    assert request.output_token_ids == [B, C]
    stats = request.stats
    assert (stats.num_drafted, stats.num_accepted) == (3, 2)
    assert stats.accepted_per_position == [1, 1]
    assert stats.accepted_by_source == {"forced": 2}


def test_stop_strings_do_not_end_a_text_of_fewer_than_min_tokens() -> None:
    toy = make_engine(RandomDrafter(3))
    texts = ("abcab",)
    for min_tokens, text in ((0, "a"), (1, "a"), (2, "abca"), (4, "abca")):
        request = toy.add(
            PROMPT,
            stop=("b",),
            min_tokens=min_tokens,
            allowed_token_ids=(A, B, C, STOP),
            compiled=ready(ToyGrammar(texts)),
        )
        toy.run([request])
        assert (request.text.text, request.finish_reason) == (text, "stop")
