"""What a request asks about its drafts: on, off, how many and of which kinds."""

import pytest

from structspec import InvalidRequest, SamplingParams, Speculation, SpeculativeConfig
from structspec.options import resolve_options
from structspec.speculation import to_speculation


def params_of(**options):
    return SamplingParams(**resolve_options(options).sampling)


@pytest.mark.parametrize(
    ("wish", "speculation"),
    [
        (True, Speculation()),
        (False, Speculation(num_speculative_tokens=0)),
        ({}, Speculation()),
        ({"num_speculative_tokens": 4}, Speculation(4)),
        ({"drafters": ["ngram", "forced"]}, Speculation(drafters=("ngram", "forced"))),
        ({"method": "ngram"}, Speculation(drafters=("ngram",))),
        ({"method": "hybrid", "num_speculative_tokens": 2}, Speculation(2)),
        ({"method": "none"}, Speculation(num_speculative_tokens=0)),
        (Speculation(3), Speculation(3)),
    ],
)
def test_every_way_to_say_it_means_the_same(wish, speculation):
    assert to_speculation(wish) == speculation
    params = params_of(speculative=wish)
    assert (params.speculative, params.speculation) == (speculation.is_on, speculation)


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"k": 3}, "unknown field 'k'; known are num_speculative_tokens, drafters and method"),
        ({"num_speculative_tokens": -1}, "num_speculative_tokens must be an integer"),
        ({"num_speculative_tokens": True}, "num_speculative_tokens must be an integer"),
        ({"drafters": "ngram"}, "drafters must be a list of forced, prediction, suffix, ngram"),
        ({"drafters": []}, "drafters must be a list"),
        ({"drafters": ["eagle"]}, r"not \['eagle'\]"),
        ({"drafters": ["ngram", "forced", "ngram"]}, "drafters: 'ngram' stands there 2 times"),
        ({"method": "ngram", "drafters": ["ngram"]}, "method and drafters contradict"),
        ({"method": "none", "num_speculative_tokens": 2}, "'none' contradicts num_speculative_t"),
        (3, "speculative must be bool or Speculation or Mapping, not 3"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(wish, message):
    with pytest.raises(InvalidRequest, match=message):
        resolve_options({"speculative": wish})


@pytest.mark.parametrize("method", ["ngram", "none"])
def test_a_drafter_that_an_engine_does_not_have_is_refused(method):
    wish = Speculation(drafters=("suffix",))
    wish.check(SpeculativeConfig())
    with pytest.raises(InvalidRequest, match=f"no drafter 'suffix'; its method '{method}' has"):
        wish.check(SpeculativeConfig(method=method))


def test_a_prediction_is_text_or_tokens():
    assert resolve_options({"prediction": "a text"}).prediction == "a text"
    assert resolve_options({"prediction": [3, 1]}).prediction == (3, 1)
    assert resolve_options({}).prediction == ()


@pytest.mark.parametrize("prediction", [3, b"ab", [1.5], [-1], [True], ["a"], "\ud800"])
def test_what_is_no_prediction_is_refused(prediction):
    with pytest.raises(InvalidRequest, match="prediction must be"):
        resolve_options({"prediction": prediction})
