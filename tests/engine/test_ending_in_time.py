"""Texts that are to end in time are those that one token after the other would give.

Whatever a step brings, holds back, loses or is preempted in: a matcher put around another in the
middle of a text narrows the same rows as one that was there from the start.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from structspec.bitmask import allocate_bitmask, unpack_row
from structspec.ending import EndInTime
from structspec.ending_search import EndingSearch
from structspec.ending_tokens import EndingTokens
from structspec.engine.late_wrapping import put_late
from structspec.request import Request
from tests.engine.coupled import CoupledSampler, HopefulPace, scores
from tests.engine.test_running_ahead_machine import RunningAhead
from tests.engine.toy import STOP, VOCABULARY, ToyEngine, hashed_logits
from tests.engine.toy_grammar import RestlessDrafter, ToyGrammar
from tests.engine.watched import Ask, Watched, make_config

SEARCH = EndingSearch(EndingTokens(VOCABULARY))
MAX_IN_FLIGHT = 2 * (4 + 1)  # steps draft four tokens
SHORT = "cc"
LONGS = ("abcabcbcabcbabcc", "abccbacbcabbc", "cbcbacbbcacbbacbcc", "bb")


@dataclass(frozen=True)
class InTime(Ask):
    """A request whose text is to end within its tokens, watched from the `first` on."""

    first: int = 0
    growth: int = 8

    @property
    def plan(self) -> EndInTime:
        wrap_at = max(0, self.first - MAX_IN_FLIGHT)
        return EndInTime(SEARCH, self.max_tokens, self.first, 40, self.growth, wrap_at)

    def start(self, toy: ToyEngine, compiled: Future | None = None) -> Request:
        request = super().start(toy, compiled)
        put_late(request, self.plan)
        return request

    def written_alone(self, *, is_coupled: bool = False) -> list[int]:
        assert self.texts is not None
        if self.temperature > 0 and not is_coupled:
            return super().written_alone()
        matcher, written = self.plan.around(ToyGrammar(self.texts).matcher()), list[int]()
        while len(written) < self.max_tokens and STOP not in written:
            logits = hashed_logits((*self.prompt, *written))
            scored = scores(logits, self.temperature, self.seed, len(written))
            bitmask = allocate_bitmask(1, VOCABULARY.vocab_size)
            matcher.fill(bitmask, 0)
            allowed = np.flatnonzero(unpack_row(bitmask[0], VOCABULARY.vocab_size)).tolist()
            written.append(max(allowed, key=scored.__getitem__))
            assert matcher.accept(written[-1])
        return written


IN_TIME = st.builds(
    InTime,
    prompt=st.lists(st.integers(0, 3), min_size=1, max_size=4).map(tuple),
    texts=st.permutations([SHORT, *LONGS]).map(lambda texts: (*texts[:3], SHORT)),
    max_tokens=st.integers(3, 18),
    first=st.integers(0, 14),
    growth=st.sampled_from([1, 8]),
    temperature=st.sampled_from([0.0, 1.0]),
    seed=st.integers(0, 9),
    speculative=st.booleans(),
)


class EndingInTime(RunningAhead):
    """Among others, requests that are to end in time."""

    @rule(ask=IN_TIME, is_compiled=st.booleans())
    def ask_in_time(self, ask: InTime, is_compiled: bool) -> None:
        if not self.is_coupled:
            ask = replace(ask, temperature=0.0)
        compiled: Future | None = None if is_compiled else Future()
        self.asks[self.watched.start(ask, compiled)] = ask


TestEndingInTime = EndingInTime.TestCase
TestEndingInTime.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def best_letter(context: tuple[int, ...]) -> str:
    logits = hashed_logits(context)
    return max("abc", key=lambda letter: logits["abc".index(letter)])


def test_what_is_drawn_before_its_grammar_is_ready_leaves_room_for_the_end() -> None:
    """The model would begin the long text, which the grammar allows and the tokens do not."""
    prompt = next((0, place) for place in range(4) if best_letter((0, place)) != "a")
    texts = best_letter(prompt) * 12, "aa"
    ask = InTime(prompt, texts, max_tokens=3)
    watched = Watched(
        make_config(),
        RestlessDrafter(0),
        pace=HopefulPace(),
        sampler=CoupledSampler(1),
        draws_early=True,
    )
    request = watched.start(ask, Future())
    for _ in range(4):
        watched.step()
    assert request.parked is not None and request.compiled is not None
    request.compiled.set_result(ToyGrammar(texts))
    watched.run()
    ask.check(request, is_coupled=True)
    assert request.finish_reason == "stop"
