"""What goes wrong while tokens are drawn before their grammar is asked, and what must not.

Memory runs out in any call, matchers fail at any question, requests are preempted and cancelled:
what is written is the masked model's all the same, and nobody is shown a token that is refused.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.errors import Cancelled, EngineError
from structspec.grammars.base import Row
from structspec.request import RequestStatus
from tests.engine.coupled import CoupledSampler, FicklePace, HopefulPace
from tests.engine.test_running_ahead_faults import failing_after
from tests.engine.test_running_ahead_laws import ASKS, DRAFTERS, EVENTS, MOMENTS
from tests.engine.toy import VOCABULARY, ToyEngine
from tests.engine.toy_grammar import RestlessDrafter, ToyGrammar, ready
from tests.engine.watched import LONG, Ask, Watched, make_config


class WideGrammar(ToyGrammar):
    """One with a wide row, which grammars of the same letters share."""

    rows: dict[frozenset[int], Row] = {}

    @property
    def wide_row(self) -> Row:
        letters = frozenset("".join(self.texts).encode())
        row = np.zeros(VOCABULARY.num_words, np.int32)
        for token_id, data in enumerate(VOCABULARY.token_bytes):
            row[0] |= (data is None or letters.issuperset(data)) << token_id
        return self.rows.setdefault(letters, row)


class ScarceMemory:
    """Memory that runs out six times, before or behind the work of some call."""

    def __init__(self, toy: ToyEngine, seed: int, rate: float) -> None:
        self._source = random.Random(seed)
        self._rate, self._num_left = rate, 6
        toy.runner.forward = self._failing(toy.runner.forward)
        toy.engine._sampler = self._failing(toy.engine._sampler)
        # rows are made room for once matchers have moved
        toy.engine._masker.fill = self._failing(toy.engine._masker.fill, only_behind=True)

    def _failing(self, work: Callable[..., Any], *, only_behind: bool = False) -> Any:
        def call(*args: Any) -> Any:
            fails = self._num_left > 0 and self._source.random() < self._rate
            self._num_left -= fails
            is_behind = only_behind or self._source.random() < 0.5
            result = work(*args) if is_behind or not fails else None
            if fails:
                raise torch.OutOfMemoryError("no room")
            return result

        return call


@settings(max_examples=100, deadline=None)
@given(
    asks=st.lists(ASKS, min_size=1, max_size=6),
    arrivals=MOMENTS,
    compiled_at=MOMENTS,
    events=EVENTS,
    block_size=st.integers(1, 4),
    budget=st.integers(1, 24),
    max_num_requests=st.integers(1, 6),
    is_always_hopeful=st.booleans(),
    kind=st.sampled_from(sorted(DRAFTERS)),
    num_runners_up=st.integers(0, 3),
    rate=st.sampled_from([0.02, 0.1, 0.3]),
    seed=st.integers(0, 1000),
)
def test_where_memory_runs_out_every_request_writes_what_it_would_alone_or_is_given_up(
    asks,
    arrivals,
    compiled_at,
    events,
    block_size,
    budget,
    max_num_requests,
    is_always_hopeful,
    kind,
    num_runners_up,
    rate,
    seed,
):
    config = make_config(
        block_size=block_size,
        num_blocks=-(-45 // block_size),
        max_num_batched_tokens=budget,
        max_num_requests=max_num_requests,
    )
    watched = Watched(
        config,
        DRAFTERS[kind](seed),
        pace=HopefulPace() if is_always_hopeful else FicklePace(0.25, seed),
        sampler=CoupledSampler(num_runners_up),
        draws_early=True,
    )
    ScarceMemory(watched.toy, seed, rate)
    started = {}
    for moment in range(40):
        for index, ask in enumerate(asks):
            arrives = arrivals[index % len(arrivals)]
            if moment == arrives:
                started[index] = watched.start(ask, Future() if ask.texts is not None else None)
            if moment == arrives + compiled_at[index % len(compiled_at)] and ask.texts is not None:
                grammar = (ToyGrammar, WideGrammar)[(index + seed) % 2](ask.texts)
                started[index].compiled.set_result(grammar)
        for when, what, index in events:
            request = started.get(index)
            if when == moment and request is not None and what == "cancel":
                watched.toy.scheduler.fail(request, Cancelled("enough"))
            elif when == moment and request and request.status is RequestStatus.RUNNING:
                watched.toy.scheduler.preempt(request)
        watched.step()
    watched.run()
    manager = watched.toy.block_manager
    assert manager.num_free_blocks == manager.num_blocks
    for index, request in started.items():
        if request.error is None:
            asks[index].check(request, is_coupled=True)
            continue
        alone = asks[index].written_alone(is_coupled=True)
        assert request.output_token_ids == alone[: request.num_output_tokens]
        assert isinstance(request.error, Cancelled) or "no room" in str(request.error)


@pytest.mark.parametrize("num_runners_up", [0, 2])
def test_a_matcher_that_fails_at_any_question_fails_its_request_alone(num_runners_up, caplog):
    texts = ("c" * 12, "cb" * 6)
    healthy = Ask((1, 2), ("cbcbacb", "cbb"))
    for num_calls in itertools.count():
        watched = Watched(
            drafter=RestlessDrafter(0), pace=HopefulPace(), sampler=CoupledSampler(num_runners_up)
        )
        bad_ask = Ask(texts=texts)
        bad = watched.start(bad_ask, ready(ToyGrammar(texts, failing_after(num_calls))))
        good, free = watched.start(healthy), watched.start(LONG)
        watched.run()
        healthy.check(good, is_coupled=True)
        LONG.check(free, is_coupled=True)
        if bad.error is None:  # it came to its end before
            bad_ask.check(bad, is_coupled=True)
            break
        assert isinstance(bad.error, EngineError)
        assert str(bad.error) == "the grammar failed: limit reached"
        alone = bad_ask.written_alone(is_coupled=True)
        assert bad.output_token_ids == alone[: bad.num_output_tokens]
    assert num_calls > 20


@settings(max_examples=60, deadline=None)
@given(asks=st.lists(ASKS, min_size=1, max_size=5), num_runners_up=st.integers(0, 2))
def test_nobody_is_shown_text_that_is_not_written_in_the_end(asks, num_runners_up):
    watched = Watched(
        drafter=RestlessDrafter(0), pace=HopefulPace(), sampler=CoupledSampler(num_runners_up)
    )
    requests = [watched.start(ask) for ask in asks]
    shown = dict.fromkeys(requests, "")
    while len(watched.told) < len(requests):
        for request in watched.step():
            text = request.text
            shown[request] += text.take_rest() if request.is_finished else text.take()
    for ask, request in zip(asks, requests, strict=True):
        ask.check(request, is_coupled=True)
        assert shown[request] == request.text.text


def test_a_prompt_whose_first_token_waits_for_a_grammar_is_in_the_cache_for_others():
    watched = Watched(
        make_config(), RestlessDrafter(0), pace=HopefulPace(), sampler=CoupledSampler(1),
        draws_early=True,
    )  # fmt: skip
    prompt = (0, 1, 2, 3, 0, 1, 2, 3, 0)
    waiting = watched.start(Ask(prompt, ("ab",)), Future())
    for _ in range(3):
        watched.step()
    assert waiting.parked is not None
    other = watched.start(Ask(prompt))
    while not other.is_finished:
        watched.step()
    assert other.stats.num_cached_tokens == 8
    Ask(prompt).check(other, is_coupled=True)
