"""A first token drawn before its grammar is ready: judged then, and nobody waits behind it."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from structspec.errors import Cancelled, GrammarError
from structspec.request import Request, RequestStatus
from tests.engine.coupled import CoupledSampler, HopefulPace
from tests.engine.recorder import Recorder
from tests.engine.toy import VOCABULARY, hashed_logits
from tests.engine.toy_grammar import RestlessDrafter, ToyBackend, ToyGrammar
from tests.engine.watched import Ask, Watched, make_config

PROMPT = (0, 1)
BEST = sorted(range(4), key=hashed_logits(PROMPT).__getitem__, reverse=True)  # without the end


def watch(num_runners_up: int = 1, **config: int) -> Watched:
    return Watched(
        make_config(**config),
        RestlessDrafter(0),
        pace=HopefulPace(),
        sampler=CoupledSampler(num_runners_up),
        draws_early=True,
    )


def text_of(place: int) -> str:
    """A text that begins with the model's favourite token, or with one behind it."""
    token = VOCABULARY.token_bytes[BEST[place]]
    assert token is not None
    return token.decode() + "c"


def park(watched: Watched, place: int = 0) -> tuple[Request, Ask]:
    ask = Ask(PROMPT, (text_of(place),))
    request = watched.start(ask, Future())
    for _ in range(4):
        watched.step()
    assert request.num_output_tokens == 0 and request.parked is not None
    return request, ask


@pytest.mark.parametrize(("place", "num_forwards"), [(0, 0), (1, 0), (3, 1)])
def test_what_is_allowed_stands_at_once_and_only_what_is_refused_is_computed_again(
    place: int, num_forwards: int
) -> None:
    watched = watch()
    recorder = Recorder(watched.toy)
    request, ask = park(watched, place)
    num_before = len(recorder.of("forward"))
    request.compiled.set_result(ToyGrammar(ask.texts))
    while request.num_output_tokens == 0:
        watched.step()
    # the step that judges it has launched the next forward pass already
    assert len(recorder.of("forward")) - num_before <= num_forwards + 1
    watched.run()
    ask.check(request, is_coupled=True)
    assert request.stats.num_refused >= (place > 0)


def test_a_grammar_that_fails_ends_its_request_alone() -> None:
    watched = watch()
    request, _ = park(watched)
    other = watched.start(Ask((1, 0)))
    request.compiled.set_exception(GrammarError("no"))
    watched.run()
    assert isinstance(request.error, GrammarError) and request.num_output_tokens == 0
    Ask((1, 0)).check(other, is_coupled=True)


def test_a_cancelled_request_is_not_judged() -> None:
    watched = watch()
    request, ask = park(watched)
    watched.toy.scheduler.fail(request, Cancelled("enough"))
    request.compiled.set_result(ToyGrammar(ask.texts))
    watched.run()
    assert request.num_output_tokens == 0


def test_nobody_waits_behind_one_that_was_preempted_and_it_is_drawn_once_more() -> None:
    watched = watch(num_blocks=8)
    request, ask = park(watched)
    watched.toy.scheduler.preempt(request)
    assert request.parked is None and request.num_pending == 0
    other = watched.start(Ask((1, 0)))
    for _ in range(40):
        watched.step()
    assert other.is_finished
    request.compiled.set_result(ToyGrammar(ask.texts))
    watched.run()
    ask.check(request, is_coupled=True)


def test_one_preempted_before_its_step_is_read_is_not_kept() -> None:
    watched = watch()
    request = watched.start(Ask(PROMPT, (text_of(0),)), Future())
    watched.step()
    assert request.num_pending == 1
    watched.toy.scheduler.preempt(request)
    watched.step()
    assert request.parked is None and request.num_pending == 0
    assert request.status is RequestStatus.WAITING
    request.compiled.set_result(ToyGrammar((text_of(0),)))
    watched.run()
    Ask(PROMPT, (text_of(0),)).check(request, is_coupled=True)


def test_all_that_wait_for_one_grammar_are_judged_with_one_question(monkeypatch) -> None:
    asked: list[int] = []
    take_unseen = ToyBackend.take_unseen
    monkeypatch.setattr(
        ToyBackend,
        "take_unseen",
        lambda self, moves: asked.append(len(moves)) or take_unseen(self, moves),
    )
    watched, compiled = watch(), Future()
    asks = [Ask(PROMPT, (text_of(0),), seed=seed, temperature=1.0) for seed in range(5)]
    requests = [watched.start(ask, compiled) for ask in asks]
    for _ in range(4):
        watched.step()
    compiled.set_result(ToyGrammar((text_of(0),)))
    watched.step()
    assert asked[0] == len(requests)
    watched.run()
    for ask, request in zip(asks, requests, strict=True):
        ask.check(request, is_coupled=True)
