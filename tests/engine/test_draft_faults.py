"""What goes wrong while a step is drafted for costs drafts, and nobody a token."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.config import EngineConfig, SpeculativeConfig
from structspec.drafters.hybrid import HybridDrafter
from structspec.drafters.registry import make_drafter
from structspec.engine.batch import Batch, Draft
from structspec.errors import EngineError
from structspec.grammars.base import MatcherFailed
from structspec.masking import Masker
from structspec.request import Request
from tests.engine.coupled import CoupledSampler, FicklePace
from tests.engine.toy import VOCABULARY, ToyEngine
from tests.engine.toy_grammar import CertainMatcher, ToyGrammar, ready

CONFIG = EngineConfig(
    block_size=2, num_blocks=60, speculative=SpeculativeConfig(num_speculative_tokens=4)
)


class Pitfall(CertainMatcher):
    """Fails behind a text that ends in `bb`, as a library does that has walked into a dead end."""

    def check(self) -> None:
        if self.written.endswith(b"bb"):
            raise MatcherFailed("came to where nothing is allowed")

    def fill(self, bitmask, row, budget=None):
        self.check()
        super().fill(bitmask, row, budget)

    def accept(self, token_id):
        self.check()
        return super().accept(token_id)

    def forced_tokens(self, limit):
        self.check()
        return []


@dataclass(frozen=True)
class PitfallGrammar(ToyGrammar):
    matcher_class: type[CertainMatcher] = Pitfall


def constrained(toy: ToyEngine, texts: tuple[str, ...], predicted: str, **params) -> Request:
    request = toy.add([0, 1], compiled=ready(PitfallGrammar(texts)), max_tokens=12, **params)
    request.prediction_token_ids = VOCABULARY.encode_text(predicted)
    return request


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(st.text("abc", min_size=1, max_size=6), min_size=1, max_size=4).map(tuple),
    predicted=st.text("abc", max_size=6),
    method=st.sampled_from(["hybrid", "prediction", "forced"]),
    is_hasty=st.booleans(),
    temperature=st.sampled_from([0.0, 1.0]),
)
def test_a_grammar_that_fails_behind_a_draft_fails_nobody_who_does_not_go_there(
    texts, predicted, method, is_hasty, temperature
):
    def run(speculative: bool) -> tuple[Request, Request]:
        drafter = make_drafter(
            VOCABULARY, SpeculativeConfig(method=method), step_seconds=lambda n: float(not is_hasty)
        )
        toy = ToyEngine(CONFIG, drafter, masker=Masker(VOCABULARY))
        params = {"temperature": temperature, "seed": 3, "speculative": speculative}
        one = constrained(toy, texts, predicted, **params)
        other = toy.add([1, 2], max_tokens=12, **params)
        toy.run([one, other])
        return one, other

    for drafted, plain in zip(run(True), run(False), strict=True):
        assert drafted.output_token_ids == plain.output_token_ids
        assert isinstance(drafted.error, EngineError) == isinstance(plain.error, EngineError)


def make_flaky(drafter: HybridDrafter, seed: int) -> Callable[[], int]:
    """Have what it looks up with fail now and then; how often it has."""
    chance, num_faults = random.Random(seed), 0

    def flaky(find: Callable) -> Callable:
        def call(*args: object, **kwargs: object) -> object:
            nonlocal num_faults
            if chance.random() < 0.3:
                num_faults += 1
                raise IndexError("no such row")
            return find(*args, **kwargs)

        return call

    drafter._ngram.continue_from = flaky(drafter._ngram.continue_from)
    drafter._ngram.continue_all = flaky(drafter._ngram.continue_all)
    drafter._prediction.continue_from = flaky(drafter._prediction.continue_from)
    return lambda: num_faults


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(st.text("abc", min_size=1, max_size=9), min_size=1, max_size=4).map(tuple),
    runs_ahead=st.booleans(),
    is_hasty=st.booleans(),
    seed=st.integers(0, 99),
)
def test_a_drafter_that_fails_in_the_middle_costs_nobody_a_token(
    texts: tuple[str, ...], runs_ahead: bool, is_hasty: bool, seed: int
) -> None:
    def run(speculative: bool) -> tuple[list[list[int]], int, int]:
        drafter = HybridDrafter(VOCABULARY, CONFIG.speculative, lambda n: float(not is_hasty))
        count_faults = make_flaky(drafter, seed)
        toy = ToyEngine(
            CONFIG,
            drafter,
            masker=Masker(VOCABULARY),
            sampler=CoupledSampler(2),
            runs_ahead=runs_ahead,
            pace=FicklePace(1.0, seed) if runs_ahead else None,
        )
        params = {"max_tokens": 12, "speculative": speculative}
        bound = [toy.add([0, n], compiled=ready(ToyGrammar(texts)), **params) for n in range(2)]
        bound[0].prediction_token_ids = VOCABULARY.encode_text(texts[0])
        requests = [*bound, toy.add([0, 1] * 4, **params)]
        toy.run(requests)
        assert [request.error for request in requests] == [None] * 3
        metrics = toy.scheduler.recorder.snapshot().spec_decode
        written = [request.output_token_ids for request in requests]
        return written, metrics.num_drafter_faults, count_faults()

    written, num_counted, num_faults = run(True)
    assert num_counted == num_faults
    assert written == run(False)[0]


def test_a_walk_that_fails_costs_no_other_request_its_drafts() -> None:
    drafter = HybridDrafter(VOCABULARY, CONFIG.speculative)
    toy = ToyEngine(CONFIG, drafter, masker=Masker(VOCABULARY))
    poisoned, other = (toy.add([0, 1] * 4, max_tokens=12) for _ in range(2))
    find = drafter._ngram.continue_from

    def fail_for_one(request: Request, *args: object, **kwargs: object) -> object:
        if request is poisoned:
            raise IndexError("no such row")
        return find(request, *args, **kwargs)

    drafter._ngram.continue_from = fail_for_one
    toy.run([poisoned, other])
    assert poisoned.output_token_ids == other.output_token_ids
    assert poisoned.stats.num_drafted == 0 < other.stats.num_drafted
    assert toy.scheduler.recorder.snapshot().spec_decode.num_drafter_faults > 0


def test_a_program_that_is_interrupted_while_it_drafts_hears_of_it() -> None:
    class Interrupted:
        def propose(self, batch: Batch) -> Draft:
            raise KeyboardInterrupt

    toy = ToyEngine(CONFIG, Interrupted())
    toy.add([0, 1], max_tokens=4)
    with pytest.raises(KeyboardInterrupt):
        toy.engine.step()
