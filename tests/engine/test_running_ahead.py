"""Steps launched before the one before them is read, and what may happen in between."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from structspec.config import SpeculativeConfig
from structspec.drafters.forced import ForcedDrafter
from structspec.drafters.hybrid import HybridDrafter
from structspec.drafters.ngram import NgramDrafter
from structspec.engine.batch import Batch, SamplerOutput
from structspec.engine.outlook import Outlook
from structspec.errors import Cancelled
from structspec.request import Request
from tests.engine.recorder import GuessFor, Plain, Recorder
from tests.engine.toy import STOP, VOCABULARY, hashed_logits
from tests.engine.toy_grammar import RestlessDrafter, ToyGrammar
from tests.engine.watched import ALONG, LONG, NEVER_WAITS, Ask, GuessingPace, Watched, make_config


def in_flight(ask: Ask = LONG, **parts: object) -> tuple[Watched, Request]:
    """An engine with one request, of which a step is running that draws a token."""
    watched = Watched(**{"drafter": Plain(), **parts})
    request = watched.start(ask)
    watched.step()
    assert request.num_pending == 1 and request.num_output_tokens == 0
    return watched, request


def ending_asks() -> list[Ask]:
    """Some that the toy model ends by itself."""
    asks = [Ask((a, b)) for a in range(4) for b in range(4)]
    asks = [ask for ask in asks if 1 < len(ask.written_alone()) < 12]
    assert asks
    return asks


def test_a_forward_pass_is_launched_before_the_one_before_it_is_read():
    watched = Watched(drafter=Plain())
    recorder = Recorder(watched.toy)
    watched.start(Ask(max_tokens=3, ignore_eos=True))
    watched.run()
    order = [what for what, _ in recorder.events]
    ahead = ["forward", "sample", "read"]
    assert order == ["forward", "sample", *ahead, *ahead, "read"]


def test_a_request_that_guesses_alone_is_waited_for_and_every_step_may_guess():
    watched = Watched(drafter=GuessFor(0))
    recorder = Recorder(watched.toy)
    watched.start(LONG)
    watched.run()
    order = [what for what, _ in recorder.events]
    assert order == ["forward", "sample", "read"] * (len(order) // 3)


def test_a_held_request_stands_aside_every_other_step_and_its_neighbours_lose_none():
    watched = Watched(make_config(max_num_batched_tokens=64), GuessFor(0))
    recorder = Recorder(watched.toy)
    asks = [Ask((i % 4, i % 3), max_tokens=8, ignore_eos=True) for i in range(8)]
    requests = [watched.start(ask) for ask in asks]
    watched.run()
    plain, everybody = list(range(1, 8)), list(range(8))
    steps = recorder.of("forward")
    num_steps = requests[0].stats.num_target_steps
    assert steps[:8] == [everybody if i % 2 == 0 and i < 2 * num_steps else plain for i in range(8)]
    for ask, request in zip(asks, requests, strict=True):
        ask.check(request)


@pytest.mark.parametrize("drafter", [Plain(), GuessFor(0)], ids=["plain", "guessing"])
def test_a_result_that_arrives_for_a_request_preempted_meanwhile_is_taken_in(drafter):
    watched = Watched(drafter=drafter, pace=NEVER_WAITS)
    request = watched.start(LONG)
    for num_preempted in range(1, 4):
        watched.step()
        num_tokens = request.num_output_tokens
        assert request.num_pending == 1
        watched.toy.scheduler.preempt(request)
        watched.step()  # it is not computed again before its result is there
        assert request.num_output_tokens > num_tokens
        assert (request.num_computed_tokens, request.num_pending) == (0, 0)
        assert request.stats.num_preemptions == num_preempted
    watched.run()
    LONG.check(request)


def test_a_prompt_preempted_while_its_piece_is_computed_starts_anew():
    watched = Watched(make_config(max_num_batched_tokens=4), Plain())
    ask = Ask([0, 1, 2] * 3, max_tokens=4)
    request = watched.start(ask)
    watched.step()
    watched.toy.scheduler.preempt(request)
    watched.run()
    assert request.stats.num_cached_tokens == 0  # of the piece nobody may make use any more
    ask.check(request)


def test_the_row_of_a_request_that_finished_one_step_earlier_is_dropped():
    for ask in ending_asks():
        watched = Watched(drafter=Plain())
        recorder = Recorder(watched.toy)
        request, neighbour = watched.start(ask), watched.start(LONG)
        watched.run()
        # its prompt gives the first token, and it is there once more when its end is read
        num_steps = sum(0 in requests for requests in recorder.of("forward"))
        assert num_steps == request.num_output_tokens + 1
        assert request.token_ids[-1] == STOP
        ask.check(request)
        LONG.check(neighbour)


def test_max_tokens_is_foreseen_and_costs_no_row_too_many():
    for max_tokens in range(1, 6):
        watched = Watched(drafter=Plain())
        recorder = Recorder(watched.toy)
        request = watched.start(Ask(max_tokens=max_tokens, ignore_eos=True))
        watched.run()
        assert len(recorder.of("forward")) == request.num_output_tokens == max_tokens


def test_a_stop_string_found_one_step_late_lets_nothing_through():
    for length in range(1, 4):
        whole = VOCABULARY.decode_bytes(LONG.written_alone()).decode()
        stop = whole[4 : 4 + length]
        ask = Ask(LONG.prompt, max_tokens=12, ignore_eos=True, stop=(stop,))
        watched = Watched(drafter=Plain())
        request = watched.start(ask)
        told = ""
        while not request.is_finished:
            watched.step()
            told += request.text.take()
        watched.step()
        told += request.text.take_rest()
        ask.check(request)
        assert told == request.text.text == whole[: whole.find(stop)]


def test_cancelled_while_its_step_runs_it_gets_no_token_more():
    watched, request = in_flight()
    neighbour = watched.start(LONG)
    watched.step()
    num_tokens = request.num_output_tokens
    watched.toy.scheduler.fail(request, Cancelled("enough"))
    assert request.block_table == []
    assert request in watched.step()
    watched.run()
    assert (request.num_output_tokens, request.finish_reason) == (num_tokens, "cancelled")
    LONG.check(neighbour)


def test_a_request_that_arrives_while_a_step_runs_joins_the_next():
    watched, first = in_flight()
    recorder = Recorder(watched.toy)
    second = watched.start(LONG)
    watched.step()
    assert recorder.of("forward") == [[0, 1]]
    watched.run()
    LONG.check(first)
    LONG.check(second)


def test_only_the_first_sample_waits_for_a_grammar_and_the_prompt_is_computed_meanwhile():
    watched = Watched(make_config(max_num_batched_tokens=4), ForcedDrafter(VOCABULARY))
    ask = Ask([0, 1, 2] * 3, ("cbc",))
    request = watched.start(ask, Future())
    for num_computed in (4, 8, 8, 8):
        watched.step()
        assert (request.num_computed_tokens, request.num_pending) == (num_computed, 0)
    assert watched.toy.engine.is_idle
    request.compiled.set_result(ToyGrammar(ask.texts))
    watched.step()
    assert request.num_pending > 0
    watched.run()
    ask.check(request)


def test_a_few_tokens_wait_with_the_last_one_where_they_cost_nothing_beside_it():
    watched = Watched(make_config(max_num_batched_tokens=4), num_free_tokens=6)
    ask = Ask([0, 1, 2] * 3, ("cbc",))
    request = watched.start(ask, Future())
    for num_computed in (4, 4, 4):  # of 9: what is left is free
        watched.step()
        assert (request.num_computed_tokens, request.num_pending) == (num_computed, 0)
    assert watched.toy.engine.is_idle
    request.compiled.set_result(ToyGrammar(ask.texts))
    watched.run()
    ask.check(request)


def test_a_grammar_ready_in_the_middle_of_planning_is_used_from_the_next_step_on():
    class JustNow(Future):
        """Not there when it is asked for the first time, there the second time."""

        num_asked = 0

        def done(self) -> bool:
            self.num_asked += 1
            return self.num_asked > 1

    compiled = JustNow()
    compiled.set_result(ToyGrammar(("cbc",)))
    watched = Watched()
    request = watched.start(Ask(texts=("cbc",)), compiled)
    watched.run()
    assert request.output_token_ids == [2, 1, 2, STOP]


@pytest.mark.parametrize("texts", [None, (ALONG, "cb" * 6, "a" * 12)])
def test_a_seed_gives_the_same_tokens_ahead_or_not_with_speculation_or_without(texts):
    different = set()
    for seed in range(8):
        written = set()
        for runs_ahead in (False, True):
            for speculative in (False, True):
                drafter = RestlessDrafter(seed)
                watched = Watched(drafter=drafter, runs_ahead=runs_ahead, pace=NEVER_WAITS)
                ask = Ask(texts=texts, temperature=1.0, seed=seed, speculative=speculative)
                request = watched.start(ask)
                watched.run()
                written.add(tuple(request.output_token_ids))
        assert len(written) == 1
        different |= written
    assert len(different) > 1


def repeating(context: tuple[int, ...]) -> list[float]:
    """Logits of a text that comes again every twelve tokens."""
    logits = [0.0] * VOCABULARY.vocab_size
    logits[(2, 1, 0, 2, 2, 1, 0, 0, 1, 1, 0, 2)[len(context) % 12]] = 1.0
    return logits


@pytest.mark.parametrize("num_requests", [1, 4])
def test_where_guesses_are_allowed_text_that_comes_again_is_guessed_as_without_running_ahead(
    num_requests,
):
    num_steps = []
    for parts in ({"runs_ahead": False}, {"pace": GuessingPace()}):
        drafter = HybridDrafter(VOCABULARY, SpeculativeConfig())
        watched = Watched(drafter=drafter, conditional=repeating, **parts)
        recorder = Recorder(watched.toy)
        for _ in range(num_requests):
            watched.start(Ask((2, 1, 0), max_tokens=60, ignore_eos=True))
        watched.run()
        num_steps.append(len(recorder.of("forward")))
    assert num_steps[0] == num_steps[1] < 40


@pytest.mark.parametrize("config", [{"max_guess_rows": 3}, {"num_speculative_tokens": 0}])
def test_where_nothing_may_be_looked_up_nobody_waits_for_it(config):
    watched = Watched(drafter=HybridDrafter(VOCABULARY, SpeculativeConfig(**config)))
    recorder = Recorder(watched.toy)
    for _ in range(2):
        watched.start(LONG)
    watched.run()
    assert [what for what, _ in recorder.events][:4] == ["forward", "sample", "forward", "sample"]


def test_guesses_begin_where_a_free_text_goes_on_as_it_did_before() -> None:
    """Steps are launched ahead up to there, and that one waits for the step before it."""
    steps: list[bool] = []

    class Noting(Outlook):
        def landed(self, batch: Batch, output: SamplerOutput, **said: bool) -> None:
            super().landed(batch, output, **said)
            steps.append(said["guesses"])

    drafter = NgramDrafter(SpeculativeConfig(prompt_lookup_min=2))
    watched = Watched(
        drafter=drafter,
        outlook=Noting(drafter.glimpse, 4, lambda: 0.0),
        conditional=lambda context: hashed_logits(context[-1:]),  # it soon goes round in circles
    )
    request = watched.start(Ask(max_tokens=40, ignore_eos=True))
    watched.run()
    assert request.num_output_tokens == 40
    assert not steps[0] and any(steps)
    assert len(steps) < 30, "guesses held"
