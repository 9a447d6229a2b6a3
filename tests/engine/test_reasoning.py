"""Reasoning in whole engines: wherever the end marker comes from, the answer begins behind it.

The toy model's tokens are a b c ab and the stop token; reasoning ends with `cc`. Each case is run
with steps one by one and ahead of each other, masked before the draw and looked at after it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.bitmask import allocate_bitmask, unpack_row
from structspec.config import EngineConfig, SpeculativeConfig
from structspec.drafters.base import count_slots
from structspec.drafters.hybrid import HybridDrafter
from structspec.drafters.ngram import NgramDrafter
from structspec.engine.batch import Batch, Draft, guessed
from structspec.engine.pace import Pace
from structspec.grammars.wrapping import FreeMatcher
from structspec.masking import Masker
from structspec.reasoning_boundary import BEFORE, REASONING, Boundary, State
from structspec.reasoning_matcher import ReasoningBound
from structspec.reasoning_progress import ReasoningProgress
from structspec.request import Request, SamplingParams
from tests.engine.coupled import CoupledSampler, FicklePace, HopefulPace, scores
from tests.engine.test_engine_distribution import other_logits
from tests.engine.toy import STOP, VOCABULARY, RandomDrafter, ToyEngine, hashed_logits
from tests.engine.toy_grammar import RestlessDrafter, ToyGrammar, ready

A, B, C = range(3)
PROMPT = (0, 2)
BOUNDARY = Boundary(VOCABULARY, "bb", "cc")
OPEN, UNDECIDED = State(REASONING), State(BEFORE)
WAYS = {
    "one by one": lambda: {},
    "ahead": lambda: {"runs_ahead": True},
    "ahead, asked afterwards": lambda: {
        "runs_ahead": True,
        "pace": HopefulPace(),
        "sampler": CoupledSampler(3),
    },
    "ahead, without runners-up": lambda: {
        "runs_ahead": True,
        "pace": HopefulPace(),
        "sampler": CoupledSampler(0),
    },
}
EVERY_WAY = pytest.mark.parametrize("way", WAYS)


def make_toy(drafter: object, **parts: object) -> ToyEngine:
    config = EngineConfig(
        block_size=2,
        num_blocks=400,
        max_num_requests=64,
        speculative=SpeculativeConfig(num_speculative_tokens=6),
    )
    return ToyEngine(config, drafter, masker=Masker(VOCABULARY), **parts)


@dataclass(frozen=True)
class Ask:
    """A request with reasoning around what it writes."""

    texts: tuple[str, ...] | None = ("ab", "ac")
    initial: State = OPEN
    limit: int | None = None
    max_tokens: int = 16
    is_required: bool = False
    params: dict = field(default_factory=dict)
    prompt: Sequence[int] = PROMPT

    @property
    def bound(self) -> ReasoningBound:
        return ReasoningBound(
            BOUNDARY,
            self.initial,
            self.max_tokens,
            self.limit,
            is_required=self.is_required,
        )

    @property
    def grammar(self) -> ToyGrammar | None:
        return None if self.texts is None else ToyGrammar(self.texts)

    def start(self, toy: ToyEngine, request_id: int = 0, **params: object) -> Request:
        request = Request(
            request_id,
            list(self.prompt),
            SamplingParams(**{**self.params, **params}),
            self.max_tokens,
            None if self.grammar is None else ready(self.grammar),
            (self.bound,),
            ReasoningProgress(BOUNDARY, self.initial),
        )
        toy.scheduler.add(request)
        return request

    def allowed(self, written: Sequence[int]) -> list[int]:
        """What may follow, by a fresh matcher."""
        inner = FreeMatcher(VOCABULARY) if self.grammar is None else self.grammar.matcher()
        matcher = self.bound.around(inner)
        assert all(map(matcher.accept, written))
        bitmask = allocate_bitmask(1, VOCABULARY.vocab_size)
        matcher.fill(bitmask, 0)
        return np.flatnonzero(unpack_row(bitmask[0], VOCABULARY.vocab_size)).tolist()


class Script:
    """A model that would write these tokens, then stop; the lowest in place of a forbidden one."""

    def __init__(self, *token_ids: int) -> None:
        self._token_ids = token_ids

    def __call__(self, context: tuple[int, ...]) -> list[float]:
        place = len(context) - len(PROMPT)
        wanted = self._token_ids[place] if place < len(self._token_ids) else STOP
        return [5.0 if t == wanted else -float(t) for t in range(VOCABULARY.vocab_size)]


class Drafts:
    """Guesses these behind so many tokens of output, once."""

    def __init__(self, behind: int, *token_ids: int) -> None:
        self._behind = behind
        self._token_ids = [*token_ids]

    def propose(self, batch: Batch) -> Draft:
        drafts = [
            self._token_ids[: count_slots(one)]
            if one.may_guess and one.request.num_output_tokens == self._behind
            else []
            for one in batch.requests
        ]
        return guessed(drafts)


def run(ask: Ask, model: Callable, drafter: object, way: str = "one by one") -> Request:
    toy = make_toy(drafter, conditional=model, **WAYS[way]())
    request = ask.start(toy)
    toy.run([request])
    assert request.error is None
    return request


def told(request: Request) -> tuple[str, str, int | None]:
    """Reasoning, answer, and where the constraint begins."""
    return request.reasoning.text.text, request.text.text, request.stats.constraint_start


NO_DRAFTS = Drafts(-1)


@EVERY_WAY
def test_an_end_marker_that_is_drafted_and_accepted_ends_reasoning(way):
    request = run(Ask(), Script(B, C, C, A, C), Drafts(1, C, C, A, C), way)
    assert request.output_token_ids == [B, C, C, A, C, STOP]
    assert told(request) == ("b", "ac", 3)
    if way == "one by one":
        assert request.stats.num_accepted == 4


@EVERY_WAY
def test_an_end_marker_that_is_drafted_and_rejected_ends_nothing(way):
    request = run(Ask(), Script(B, B, A, C, C, A, B), Drafts(1, C, C, A, B), way)
    assert request.output_token_ids == [B, B, A, C, C, A, B, STOP]
    assert told(request) == ("bba", "ab", 5)


@EVERY_WAY
def test_half_an_end_marker_that_is_accepted_does_not_end_reasoning(way):
    request = run(Ask(), Script(B, C, B, C, C, A, B), Drafts(1, C, C, A, B), way)
    assert request.output_token_ids == [B, C, B, C, C, A, B, STOP]
    assert told(request) == ("bcb", "ab", 5)


@EVERY_WAY
def test_an_end_marker_that_is_the_recovered_token_ends_reasoning(way):
    request = run(Ask(), Script(B, C, C, A, C), Drafts(1, C, B, B), way)
    assert request.output_token_ids == [B, C, C, A, C, STOP]
    assert told(request) == ("b", "ac", 3)


@EVERY_WAY
def test_an_end_marker_that_is_the_bonus_token_ends_reasoning(way):
    request = run(Ask(), Script(B, C, C, A, C), Drafts(1, C), way)
    assert request.output_token_ids == [B, C, C, A, C, STOP]
    assert told(request) == ("b", "ac", 3)


@EVERY_WAY
def test_drafts_behind_an_end_marker_are_held_to_the_grammar(way):
    """The model would write `cb`, which is drafted, and may write `ab` alone."""
    request = run(Ask(texts=("ab",)), Script(B, C, C, C, B), Drafts(1, C, C, C, B), way)
    assert request.output_token_ids == [B, C, C, A, B, STOP]
    assert told(request) == ("b", "ab", 3)
    if way == "one by one":
        assert request.stats.num_accepted == 2


@EVERY_WAY
def test_a_stop_token_in_reasoning_is_refused_drafted_or_not(way):
    model = Script(B, STOP, STOP, C, C, A, B)
    for drafter in (NO_DRAFTS, Drafts(1, STOP)):
        request = run(Ask(), model, drafter, way)
        assert request.output_token_ids == [B, A, A, C, C, A, B, STOP]
        assert told(request) == ("baa", "ab", 5)


@EVERY_WAY
def test_a_model_that_answers_at_once_is_held_to_the_grammar_from_its_first_token(way):
    request = run(Ask(initial=UNDECIDED), Script(A, C), Drafts(1, C, STOP), way)
    assert request.output_token_ids == [A, C, STOP]
    assert told(request) == ("", "ac", 0)
    assert request.usage.reasoning_tokens == 0


@EVERY_WAY
def test_a_model_that_may_reason_and_does_is_held_to_the_grammar_behind_the_end(way):
    request = run(Ask(initial=UNDECIDED), Script(B, B, A, C, C, A, C), Drafts(1, B, A, C), way)
    assert request.output_token_ids == [B, B, A, C, C, A, C, STOP]
    assert told(request) == ("a", "ac", 5)
    assert request.usage.reasoning_tokens == 5


@EVERY_WAY
def test_an_answer_that_begins_as_the_start_marker_does_is_an_answer(way):
    ask = Ask(texts=("ba", "bc"), initial=UNDECIDED)
    request = run(ask, Script(B, C), Drafts(1, C, STOP), way)
    assert told(request) == ("", "bc", 0)
    request = run(ask, Script(B, B, C, C, B, A), Drafts(1, B, C, C, B), way)
    assert told(request) == ("", "ba", 4)


@EVERY_WAY
def test_reasoning_that_is_asked_for_begins_with_its_marker(way):
    ask = Ask(initial=UNDECIDED, is_required=True)
    request = run(ask, Script(A, A, A, C, C, A, B), NO_DRAFTS, way)
    assert request.output_token_ids == [B, B, A, C, C, A, B, STOP]
    assert told(request) == ("a", "ab", 5)


@EVERY_WAY
@pytest.mark.parametrize("limit", [0, 1, 2, 5])
def test_reasoning_that_would_never_end_is_ended_at_its_limit(way, limit):
    request = run(Ask(limit=limit), Script(*[B] * 99), NO_DRAFTS, way)
    assert request.output_token_ids == [B] * limit + [C, C, A, B, STOP]
    assert told(request) == ("b" * limit, "ab", limit + 2)


@EVERY_WAY
def test_half_an_end_marker_that_stands_at_the_limit_is_completed_and_not_doubled(way):
    request = run(Ask(limit=3), Script(B, B, C, B), NO_DRAFTS, way)
    assert request.output_token_ids == [B, B, C, C, A, B, STOP]
    assert told(request) == ("bb", "ab", 4)


@EVERY_WAY
def test_drafts_across_the_limit_are_refused_there(way):
    request = run(Ask(limit=3), Script(*[B] * 99), Drafts(1, B, B, B, B), way)
    assert request.output_token_ids == [B, B, B, C, C, A, B, STOP]
    if way == "one by one":
        assert request.stats.num_accepted == 2


@EVERY_WAY
@pytest.mark.parametrize("max_tokens", [9, 12, 30])
def test_without_a_limit_a_share_of_the_tokens_is_kept_for_the_answer(way, max_tokens):
    request = run(Ask(max_tokens=max_tokens), Script(*[B] * 99), NO_DRAFTS, way)
    assert request.finish_reason == "stop" and request.text.text == "ab"
    num_reasoned = max_tokens - math.ceil(max_tokens / 4) - 2
    assert request.stats.constraint_start == num_reasoned + 2
    assert request.usage.completion_tokens == num_reasoned + 2 + 3


@EVERY_WAY
def test_free_text_may_have_a_limit_of_reasoning_too(way):
    request = run(Ask(texts=None, limit=2), Script(*[B] * 5, C, A), NO_DRAFTS, way)
    assert request.output_token_ids == [B, B, C, C, B, C, A, STOP]
    assert told(request) == ("bb", "bca", None)


@EVERY_WAY
def test_a_stop_string_in_reasoning_does_not_end_the_output(way):
    ask = Ask(texts=None, params={"stop": ("bc",)})
    request = run(ask, Script(B, C, A, C, C, A, B, C, A), Drafts(2, A, C, C, A, B, C), way)
    assert told(request)[:2] == ("bca", "a")
    assert request.text.stop_string == "bc"


@EVERY_WAY
def test_what_the_drafters_copy_crosses_both_markers(way):
    """The prompt holds it all: reasoning, the marker and the answer."""
    ask = Ask(prompt=(B, A, B, C, C, A, C, A), texts=("acac", "acab"))
    script = Script(B, A, B, C, C, A, C, A, B)

    def model(context: tuple[int, ...]) -> list[float]:
        return script(context[len(ask.prompt) - len(PROMPT) :])

    plain = run(ask, model, NO_DRAFTS, way)
    for drafter in (
        NgramDrafter(SpeculativeConfig()),
        HybridDrafter(VOCABULARY, SpeculativeConfig()),
    ):
        request = run(ask, model, drafter, way)
        assert request.output_token_ids == plain.output_token_ids
        assert told(request) == ("bab", "acab", 5)
        assert request.stats.num_accepted > 0


def test_what_the_grammar_forces_is_drafted_as_soon_as_the_marker_stands():
    """The end of reasoning is forced, and so is all of the answer: one step for each."""
    ask = Ask(texts=("acb",), limit=1)
    request = run(ask, Script(B), HybridDrafter(VOCABULARY, SpeculativeConfig()))
    assert request.output_token_ids == [B, C, C, A, C, B, STOP]
    assert request.stats.num_target_steps == 2


@EVERY_WAY
def test_a_preempted_request_goes_on_where_it_was_in_its_marker(way):
    toy = make_toy(NO_DRAFTS, conditional=Script(B, C, C, A, C), **WAYS[way]())
    request = Ask().start(toy)
    for _ in range(9):
        toy.engine.step()
        if request.status.name == "RUNNING" and request.num_output_tokens == 2:
            toy.scheduler.preempt(request)
            break
    toy.run([request])
    assert request.output_token_ids == [B, C, C, A, C, STOP]
    assert told(request) == ("b", "ac", 3)


def test_news_of_a_stream_tell_reasoning_and_answer_apart_and_hold_back_half_a_marker():
    toy = make_toy(NO_DRAFTS, conditional=Script(B, C, B, C, C, A, C))
    request = Ask().start(toy)
    pieces = []
    while not request.is_finished:
        toy.engine.step()
        pieces.append((request.reasoning.text.take(), request.text.take()))
    assert pieces == [
        *(("b", ""), ("", ""), ("cb", ""), ("", ""), ("", "")),
        *(("", "a"), ("", "c"), ("", "")),
    ]


def test_requests_with_and_without_reasoning_share_a_batch():
    toy = make_toy(RestlessDrafter(3))
    asks = [Ask(), Ask(texts=None, limit=1), Ask(initial=UNDECIDED), Ask(limit=0)]
    requests = [ask.start(toy, i) for i, ask in enumerate(asks)]
    requests += [toy.add(PROMPT), toy.add(PROMPT, compiled=ready(ToyGrammar(("ab", "cab"))))]
    toy.run(requests)
    assert all(request.error is None for request in requests)
    for ask, request in zip(asks, requests, strict=False):
        assert request.output_token_ids == alone(ask)


def alone(ask: Ask, temperature: float = 0.0, seed: int = 0) -> list[int]:
    """Token by token without an engine: the best of what a fresh matcher allows."""
    written: list[int] = []
    while len(written) < ask.max_tokens and STOP not in written:
        logits = hashed_logits((*ask.prompt, *written))
        best = scores(logits, temperature, seed, len(written))
        written.append(max(ask.allowed(written), key=best.__getitem__))
    return written


ASKS = st.builds(
    Ask,
    texts=st.none() | st.lists(st.text("abc", min_size=1, max_size=4), min_size=1).map(tuple),
    initial=st.sampled_from([OPEN, UNDECIDED]),
    limit=st.none() | st.integers(0, 5),
    max_tokens=st.integers(1, 20),
    is_required=st.booleans(),
    prompt=st.lists(st.integers(0, 3), min_size=1, max_size=5),
)
DRAFTERS = {
    "restless": RestlessDrafter,
    "random": RandomDrafter,
    "hybrid": lambda seed: HybridDrafter(VOCABULARY, SpeculativeConfig()),
}


@settings(max_examples=100, deadline=None)
@given(
    asks=st.lists(ASKS, min_size=1, max_size=4),
    temperature=st.sampled_from([0.0, 0.0, 1.0]),
    kind=st.sampled_from(sorted(DRAFTERS)),
    runs_ahead=st.booleans(),
    num_runners_up=st.integers(0, 3),
    seed=st.integers(0, 1000),
)
def test_every_request_writes_what_it_would_write_alone(
    asks, temperature, kind, runs_ahead, num_runners_up, seed
):
    """With speculation and without it, whether masks come first or afterwards, as it happens."""
    pace = FicklePace(1.0, seed) if runs_ahead else Pace()
    toy = make_toy(
        DRAFTERS[kind](seed),
        sampler=CoupledSampler(num_runners_up),
        runs_ahead=runs_ahead,
        pace=pace,
        draws_early=runs_ahead,
    )
    requests = [
        ask.start(toy, i, temperature=temperature, seed=i, speculative=i % 3 != 2)
        for i, ask in enumerate(asks)
    ]
    toy.run(requests)
    for i, (ask, request) in enumerate(zip(asks, requests, strict=True)):
        assert request.error is None
        assert request.output_token_ids == alone(ask, temperature, i)
        progress = ReasoningProgress(BOUNDARY, ask.initial)
        answer = b"".join(
            progress.take(t, VOCABULARY.token_bytes[t] or b"") for t in request.output_token_ids
        )
        assert request.text.text.encode() == answer + progress.finish()
        assert request.usage.reasoning_tokens == progress.num_tokens
        if ask.texts is not None and request.finish_reason == "stop":
            assert request.stats.constraint_start == progress.num_before, "it never engaged"
            assert request.text.text in ask.texts


NUM_SAMPLES = 2000
SHORT = Ask(texts=("a", "bc", "abb"), limit=2, max_tokens=7)


def exact_outputs(written: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], float]]:
    """Every output of SHORT with its probability under the masked target."""
    if len(written) == SHORT.max_tokens or written[-1:] == (STOP,):
        yield written, 1.0
        return
    allowed = SHORT.allowed(written)
    logits = torch.tensor(hashed_logits((*PROMPT, *written)), dtype=torch.float64)
    for token_id, p in zip(allowed, logits[allowed].softmax(0).tolist(), strict=True):
        for output, rest in exact_outputs((*written, token_id)):
            yield output, p * rest


@pytest.mark.parametrize("kind", ["one-hot", "probabilistic", "asked afterwards"])
def test_outputs_are_distributed_as_the_bounded_target_writes_them(kind):
    """Hoeffding and a union bound: see test_engine_distribution."""
    conditional = other_logits if kind == "probabilistic" else None
    parts = {"runs_ahead": True, "pace": HopefulPace()} if kind == "asked afterwards" else {}
    toy = make_toy(RandomDrafter(7, conditional), **parts)
    exact = dict(exact_outputs())
    assert math.isclose(sum(exact.values()), 1.0) and len(exact) > 20
    requests = [SHORT.start(toy, i, temperature=1.0, seed=i) for i in range(NUM_SAMPLES)]
    toy.run(requests)
    assert sum(request.stats.num_accepted for request in requests) > NUM_SAMPLES / 10
    counts = Counter(tuple(request.output_token_ids) for request in requests)
    assert set(counts) <= set(exact)
    eps = math.sqrt(math.log(2 * len(exact) / 1e-6) / (2 * NUM_SAMPLES))
    assert max(abs(counts[output] / NUM_SAMPLES - p) for output, p in exact.items()) < eps
