"""Intervals of medians: by hand for few values, and as often right as they say."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structspec.bench.intervals import median_interval, quantile


def test_of_ten_values_the_second_and_the_ninth_are_97_9_per_cent_sure() -> None:
    found = median_interval([float(value) for value in range(1, 11)])
    assert (found.low, found.median, found.high) == (2.0, 5.5, 9.0)
    assert found.confidence == pytest.approx(1 - 2 * (1 + 10) / 2**10)


def test_five_values_are_too_few_for_95_per_cent_and_say_so() -> None:
    found = median_interval([3.0, 1.0, 2.0, 5.0, 4.0])
    assert (found.low, found.high) == (1.0, 5.0)
    assert found.confidence == 1 - 2 / 2**5


def test_one_value_is_its_own_interval_and_sure_of_nothing() -> None:
    found = median_interval([7.0])
    assert (found.low, found.median, found.high, found.confidence) == (7.0, 7.0, 7.0, 0.0)


def test_the_true_median_lies_inside_as_often_as_said() -> None:
    source = random.Random(3)
    found = [median_interval([source.expovariate(1.0) for _ in range(12)]) for _ in range(4000)]
    true_median = 0.6931
    share = sum(one.low <= true_median <= one.high for one in found) / len(found)
    assert share == pytest.approx(found[0].confidence, abs=0.01)  # about 3 standard deviations


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40), st.floats(0.01, 1.0))
def test_a_quantile_is_a_value_that_so_many_do_not_exceed(
    values: list[float], share: float
) -> None:
    found = quantile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values)
