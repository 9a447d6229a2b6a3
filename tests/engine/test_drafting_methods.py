"""However an engine drafts, and whatever its requests are predicted to write: the same tokens."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from structspec import Speculation, SpeculativeConfig
from structspec.drafters.registry import make_drafter
from structspec.speculative_config import DRAFTER_NAMES, METHODS
from tests.engine.test_running_ahead_laws import ASKS
from tests.engine.toy import VOCABULARY, ToyEngine
from tests.engine.watched import NEVER_WAITS, Ask, Watched, make_config

SPECULATIONS = st.builds(
    Speculation,
    st.none() | st.integers(1, 4),
    st.none() | st.permutations(DRAFTER_NAMES).map(lambda names: tuple(names[:3])),
)


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
