"""compute_target_probs against the definitions, written out slowly."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.engine.sampling_probs import compute_target_probs
from structspec.request import SamplingParams

NEGATIVE_INFINITY = float("-inf")


def slow_probs(logits, params):
    """One row in float64: temperature, then each filter on what the one before left."""
    kept = {t: x / params.temperature for t, x in enumerate(logits) if x != NEGATIVE_INFINITY}
    best = max(kept.values())
    weights = {t: math.exp(x - best) for t, x in kept.items()}
    if params.min_p > 0:
        weights = {t: w for t, w in weights.items() if w >= params.min_p}
    if 0 < params.top_k < len(weights):
        least = sorted(weights.values(), reverse=True)[params.top_k - 1]
        weights = {t: w for t, w in weights.items() if w >= least}
    if params.top_p < 1:
        total, mass, least = sum(weights.values()), 0.0, None
        for w in sorted(weights.values(), reverse=True):
            mass, least = mass + w / total, w
            if mass >= params.top_p:
                break
        weights = {t: w for t, w in weights.items() if w >= least}
    total = sum(weights.values())
    return [weights.get(t, 0.0) / total for t in range(len(logits))]


def probs(logits, **params):
    return compute_target_probs(torch.tensor([logits]), [SamplingParams(**params)])[0]


def logs(*weights):
    return [math.log(w) if w else NEGATIVE_INFINITY for w in weights]


FOUR = logs(4, 3, 2, 1)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        pytest.param({"temperature": 1.0}, [0.4, 0.3, 0.2, 0.1], id="plain"),
        pytest.param({"temperature": 0.5}, [16 / 30, 9 / 30, 4 / 30, 1 / 30], id="temperature"),
        pytest.param({"temperature": 1.0, "top_k": 2}, [4 / 7, 3 / 7, 0, 0], id="top-k"),
        pytest.param({"temperature": 1.0, "top_k": 9}, [0.4, 0.3, 0.2, 0.1], id="top-k-of-more"),
        pytest.param({"temperature": 1.0, "top_p": 0.35}, [1, 0, 0, 0], id="top-p-one"),
        pytest.param({"temperature": 1.0, "top_p": 0.65}, [4 / 7, 3 / 7, 0, 0], id="top-p-two"),
        pytest.param({"temperature": 1.0, "top_p": 0.85}, [4 / 9, 3 / 9, 2 / 9, 0], id="top-p-3"),
        pytest.param({"temperature": 1.0, "min_p": 0.6}, [4 / 7, 3 / 7, 0, 0], id="min-p"),
        pytest.param({"temperature": 1.0, "min_p": 1.0}, [1, 0, 0, 0], id="min-p-of-1"),
        pytest.param(
            # min_p leaves 4 3 2, top-k 4 3, of which 4/7 already reaches 0.5
            {"temperature": 1.0, "min_p": 0.4, "top_k": 2, "top_p": 0.5},
            [1, 0, 0, 0],
            id="each-filter-works-on-what-the-one-before-left",
        ),
        pytest.param(
            {"temperature": 1e-30, "top_p": 0.9, "top_k": 3}, [1, 0, 0, 0], id="tiny-temperature"
        ),
        pytest.param({"temperature": 1e-320}, [1, 0, 0, 0], id="temperature-of-0-in-float32"),
        pytest.param({"temperature": 1e30}, [0.25] * 4, id="huge-temperature"),
        pytest.param({"temperature": 1e300}, [0.25] * 4, id="temperature-beyond-float32"),
    ],
)
def test_four_tokens(params, expected):
    assert probs(FOUR, **params).tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("params", [{"top_k": 2}, {"top_p": 0.55}, {"min_p": 0.9}], ids=str)
def test_equally_likely_tokens_are_kept_or_dropped_together(params):
    equal = probs(logs(1, 1, 0, 1), temperature=1.0, **params)
    assert equal.tolist() == pytest.approx([1 / 3, 1 / 3, 0, 1 / 3])


def test_the_kth_best_token_may_have_an_equal():
    tied = probs(logs(1, 4, 1, 3, 3), temperature=1.0, top_k=2)
    assert tied.tolist() == pytest.approx([0, 0.4, 0, 0.3, 0.3])


def test_forbidden_tokens_stay_forbidden():
    params = {"temperature": 1.0, "top_k": 3, "top_p": 0.99, "min_p": 0.01}
    masked = probs([NEGATIVE_INFINITY, 1.0, NEGATIVE_INFINITY, NEGATIVE_INFINITY], **params)
    assert masked.tolist() == [0, 1, 0, 0]


ROW = st.lists(
    st.one_of(st.integers(-20, 20).map(lambda n: n / 4), st.just(NEGATIVE_INFINITY)),
    min_size=6,
    max_size=6,
).filter(lambda row: max(row) > NEGATIVE_INFINITY)
PARAMS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.25, 0.5, 1.0, 2.0]),
    top_k=st.integers(0, 7),
    top_p=st.sampled_from([0.123, 0.377, 0.511, 0.777, 0.913, 1.0]),
    min_p=st.sampled_from([0.0, 0.0123, 0.123, 0.377, 1.0]),
)


@settings(deadline=None)
@given(st.lists(st.tuples(ROW, PARAMS), min_size=1, max_size=5))
def test_rows_with_parameters_of_their_own_follow_the_definitions(rows):
    logits = torch.tensor([row for row, _ in rows])
    before = logits.clone()
    result = compute_target_probs(logits, [params for _, params in rows])
    assert torch.equal(logits, before)
    for got, (row, params) in zip(result.tolist(), rows, strict=True):
        assert got == pytest.approx(slow_probs(row, params), abs=1e-6)


@pytest.mark.parametrize("spread", [0.1, 1.0, 4.0])
def test_top_p_of_a_real_vocabulary_follows_the_definition(spread):
    # 0.1: nearly flat, so that tens of thousands of tokens are needed; 4.0: a handful.
    logits = torch.randn(9000, generator=torch.Generator().manual_seed(1)).mul(spread)
    params = SamplingParams(temperature=1.0, top_p=0.9)
    got = compute_target_probs(logits[None], [params])[0]
    expected = torch.tensor(slow_probs(logits.tolist(), params))
    # A sum of 9000 float32 may end one token earlier or later than the exact one.
    assert abs(int((got > 0).sum()) - int((expected > 0).sum())) <= 1
    assert torch.allclose(got, expected, atol=1e-5, rtol=1e-3)


def test_logits_in_bfloat16_give_probabilities_in_float32():
    result = compute_target_probs(
        torch.zeros(1, 4, dtype=torch.bfloat16), [SamplingParams(temperature=1.0)]
    )
    assert result.dtype == torch.float32
    assert result.tolist() == [[0.25] * 4]
