"""However an engine drafts, and whatever its requests are predicted to write: the same tokens."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec import EngineConfig, Speculation, SpeculativeConfig
from structspec.drafters.registry import make_drafter
from structspec.engine.memory import max_num_drafts
from structspec.engine.pace import Pace
from structspec.errors import Cancelled
from structspec.request import RequestStatus
from structspec.speculative_config import DRAFTER_NAMES, METHODS
from tests.engine.test_running_ahead_laws import ASKS, EVENTS
from tests.engine.toy import VOCABULARY, RandomDrafter, ToyEngine
from tests.engine.watched import NEVER_WAITS, Ask, Watched, make_config

SPECULATIONS = st.builds(
    Speculation,
    st.none() | st.integers(1, 4),
    st.none() | st.permutations(DRAFTER_NAMES).map(lambda names: tuple(names[:3])),
)


DRAFTING = [method for method in METHODS if method not in ("custom_class", "none")]


@settings(max_examples=120, deadline=None)
@given(
    asks=st.lists(ASKS, min_size=1, max_size=5),
    predictions=st.lists(st.lists(st.integers(0, 3), max_size=12), min_size=1, max_size=3),
    speculations=st.lists(SPECULATIONS, min_size=1, max_size=3),
    is_predicted=st.booleans(),
    runs_ahead=st.booleans(),
    rounds=st.integers(1, 2),
    method=st.sampled_from([method for method in METHODS if method != "custom_class"]),
)
def test_every_method_writes_what_the_model_writes_alone(
    asks, predictions, speculations, is_predicted, runs_ahead, rounds, method
):
    """In a second round everything was written before."""
    drafter = make_drafter(VOCABULARY, SpeculativeConfig(method=method))
    watched = Watched(make_config(), drafter, pace=NEVER_WAITS, runs_ahead=runs_ahead)
    for _ in range(rounds):
        started = []
        for index, ask in enumerate(asks):
            request = watched.start(ask)
            request.prediction_token_ids = predictions[index % len(predictions)]
            if is_predicted:
                request.prediction_token_ids = ask.written_alone()
            wish = speculations[index % len(speculations)]
            if method == "hybrid":
                request.params = replace(request.params, speculation=wish)
            started.append((ask, request))
        watched.run()
        for ask, request in started:
            ask.check(request)


def steps_of(method, prediction):
    """How many steps a free text of 12 tokens takes."""
    drafter = make_drafter(VOCABULARY, SpeculativeConfig(method=method))
    toy = ToyEngine(make_config(), drafter)
    ask = Ask(max_tokens=12, ignore_eos=True)
    request = ask.start(toy)
    request.prediction_token_ids = prediction
    toy.run([request])
    ask.check(request)
    return request.stats.num_target_steps


def test_a_right_prediction_takes_a_quarter_of_the_steps():
    written = Ask(max_tokens=12, ignore_eos=True).written_alone()
    assert steps_of("prediction", written) == steps_of("hybrid", written) == 3  # 5, 5 and 2 tokens
    assert steps_of("none", written) == 12


@settings(max_examples=100, deadline=None)
@given(
    asks=st.lists(ASKS, min_size=1, max_size=5),
    events=EVENTS,
    num_blocks=st.integers(13, 30),
    runs_ahead=st.booleans(),
    method=st.sampled_from(DRAFTING),
)
def test_drafts_of_preempted_and_cancelled_requests_are_dropped(
    asks, events, num_blocks, runs_ahead, method
):
    """Later requests get what those that ended had: rows of tables, cache blocks."""
    drafter = make_drafter(VOCABULARY, SpeculativeConfig(method=method))
    config = make_config(num_blocks=num_blocks)
    watched = Watched(config, drafter, pace=NEVER_WAITS, runs_ahead=runs_ahead)
    for _ in range(2):
        started = [(ask, watched.start(ask)) for ask in asks]
        for ask, request in started:
            request.prediction_token_ids = ask.written_alone()
        for moment in range(26):
            for when, what, index in events:
                request = started[index % len(started)][1]
                if when == moment and what == "cancel":
                    watched.toy.scheduler.fail(request, Cancelled("enough"))
                elif when == moment and request.status is RequestStatus.RUNNING:
                    watched.toy.scheduler.preempt(request)
            watched.step()
        watched.run()
        manager = watched.toy.block_manager
        assert manager.num_free_blocks == manager.num_blocks
        for ask, request in started:
            if request.error is None:
                ask.check(request)
            else:
                written = request.output_token_ids
                assert written == ask.written_alone()[: len(written)]


@pytest.mark.parametrize("method", DRAFTING)
def test_no_kind_of_draft_preempts_anybody(method):
    # 2 requests of 4 + 6 tokens fill the 10 blocks of 2: drafts get what room there still is.
    drafter = make_drafter(VOCABULARY, SpeculativeConfig(method=method))
    watched = Watched(make_config(num_blocks=10), drafter, pace=NEVER_WAITS, runs_ahead=False)
    ask = Ask((0, 1, 0, 1), max_tokens=6, ignore_eos=True)
    requests = [watched.start(ask) for _ in range(2)]
    for request in requests:
        request.prediction_token_ids = ask.written_alone()
    watched.run()
    assert all(request.stats.num_preemptions == 0 for request in requests)
    drafted = sum(request.stats.num_drafted for request in requests)
    assert (drafted > 0) is (method != "forced")  # which has no grammar here


@pytest.mark.parametrize("method", ["ngram", "ngram_gpu", "suffix", "prediction", "hybrid"])
def test_a_step_without_a_guess_is_not_the_last_that_could_guess(method):
    """Steps run ahead; nothing is guessed at first, for no token came twice."""
    drafter = make_drafter(VOCABULARY, SpeculativeConfig(method=method))
    watched = Watched(make_config(), drafter, pace=Pace())
    ask = Ask((0, 1), max_tokens=14, ignore_eos=True)
    request = watched.start(ask)
    request.prediction_token_ids = ask.written_alone()[2:]
    watched.run()
    ask.check(request)
    assert request.stats.num_drafted > 0


@pytest.mark.parametrize("method", ["prediction", "suffix", "ngram", "ngram_gpu", "hybrid"])
@pytest.mark.parametrize("num_draft_tokens", [0, 1, 7])
def test_of_any_number_of_tokens_what_a_step_has_room_for_is_drafted(method, num_draft_tokens):
    wish = SpeculativeConfig(method=method, num_speculative_tokens=10**9)
    config = EngineConfig(
        num_blocks=60, block_size=4, max_num_draft_tokens=num_draft_tokens, speculative=wish
    )
    toy = ToyEngine(config, make_drafter(VOCABULARY, wish))
    ask = Ask(max_tokens=40, ignore_eos=True)
    request = ask.start(toy)
    request.prediction_token_ids = ask.written_alone()
    toy.run([request])
    ask.check(request)
    longest = len(request.stats.drafted_per_position)
    assert longest <= max_num_drafts(config) == num_draft_tokens
    assert method in ("suffix", "ngram", "ngram_gpu") or longest == num_draft_tokens


@pytest.mark.parametrize("num_running", [1, 2, 3, 8])
def test_rows_that_fewer_requests_leave_are_shared_by_those_that_run(num_running: int) -> None:
    wish = SpeculativeConfig(num_speculative_tokens=7)
    config = EngineConfig(
        num_blocks=200, block_size=4, max_num_requests=8, max_num_draft_tokens=8, speculative=wish
    )
    toy = ToyEngine(config, RandomDrafter(0))
    for index in range(num_running):
        Ask((index, 1), max_tokens=40, ignore_eos=True).start(toy)
    toy.engine.step()
    batch = toy.scheduler.schedule()
    num_slots = [scheduled.num_draft_slots for scheduled in batch.requests]
    assert num_slots == [min(7, (16 - num_running) // num_running)] * num_running
