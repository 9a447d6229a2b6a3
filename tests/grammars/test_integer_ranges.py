"""Ranges of integers as regular expressions: the digits of every integer inside, and no others."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from structspec.grammars.json.integers import integer_range
from structspec.grammars.json.shapes import Limit

SMALL = st.integers(-1300, 1300)
LARGE = st.builds(lambda a, n, b: a * 10**n + b, SMALL, st.integers(0, 14), st.integers(-1, 1))
VALUES = st.one_of(
    SMALL.map(Fraction), LARGE.map(Fraction), st.fractions(-20, 20, max_denominator=4)
)
LIMITS = st.one_of(st.none(), st.builds(Limit, VALUES, st.booleans()))


def is_inside(value: int, lower: Limit | None, upper: Limit | None) -> bool:
    if lower and (value < lower.value or (lower.is_open and value == lower.value)):
        return False
    return not (upper and (value > upper.value or (upper.is_open and value == upper.value)))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(lower=LIMITS, upper=LIMITS, values=st.lists(st.one_of(SMALL, LARGE), max_size=50))
@example(lower=Limit(Fraction(0), True), upper=None, values=[])
@example(lower=Limit(Fraction(-1)), upper=Limit(Fraction(0)), values=[])
def test_an_integer_is_spelled_where_it_is_inside(
    lower: Limit | None, upper: Limit | None, values: list[int]
) -> None:
    regex = integer_range(lower, upper)
    ends = [int(end.value) + d for end in (lower, upper) if end for d in (-10, -1, 0, 1, 10)]
    for value in (*values, *ends, *range(-120, 121)):
        is_spelled = regex is not None and re.fullmatch(regex, str(value)) is not None
        assert is_spelled == is_inside(value, lower, upper)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    lower=LIMITS, upper=LIMITS, text=st.from_regex(r"-?0[0-9]*\.?0*|\+?[0-9]*e?", fullmatch=True)
)
def test_nothing_is_spelled_that_json_does_not_write_so(
    lower: Limit | None, upper: Limit | None, text: str
) -> None:
    regex = integer_range(lower, upper)
    if regex is not None and re.fullmatch(regex, text):
        assert str(int(text)) == text


@pytest.mark.parametrize(
    ("low", "high", "regex"),
    [
        (0, None, "0|[1-9][0-9]*"),
        (1, 999, "[1-9][0-9]{0,2}"),
        (8, 1234, "[8-9]|[1-9][0-9]{1,2}|1([0-1][0-9]{2}|2([0-2][0-9]|3[0-4]))"),
        (-5, 5, "-[1-5]|0|[1-5]"),
        (7, 7, "7"),
    ],
)
def test_ranges_are_short_to_read(low: int, high: int | None, regex: str) -> None:
    upper = None if high is None else Limit(Fraction(high))
    assert integer_range(Limit(Fraction(low)), upper) == regex


def test_an_empty_range_has_no_digits() -> None:
    assert integer_range(Limit(Fraction(1, 4)), Limit(Fraction(3, 4))) is None
