"""What regexes match and hold, against Python's `re` and against counting by hand."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.grammars.regexes.derive import (
    are_disjoint,
    can_always_grow,
    is_empty,
    length_bounds,
    matches,
    words,
)
from structspec.grammars.regexes.parse import parse_full
from structspec.grammars.regexes.syntax import (
    ANYTHING,
    EMPTY,
    NOTHING,
    Regex,
    both,
    complement,
    sequence,
    text,
)
from tests.grammars.regexes.regexes import ANY_REGEX, TEXTS

_PIECES = st.sampled_from(["a", "b", "[ab]", "[^a]", ".", "c", r"\d"])
PATTERNS = st.recursive(
    _PIECES,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "*?"])).map(
            lambda two: f"(?:{two[0]}){two[1]}"
        ),
    ),
    max_leaves=8,
)
SHORT_TEXTS = st.text("abc1\n", max_size=7)


@settings(deadline=None, max_examples=500)
@given(PATTERNS, SHORT_TEXTS)
def test_plain_patterns_match_as_in_python(pattern, text):
    assert matches(parse_full(pattern), text) == (re.fullmatch(pattern, text) is not None)


@settings(deadline=None, max_examples=300)
@given(ANY_REGEX, ANY_REGEX, TEXTS)
def test_and_and_not_mean_what_they_say(a, b, text):
    assert matches(both(a, b), text) == (matches(a, text) and matches(b, text))
    assert matches(complement(a), text) != matches(a, text)


@settings(deadline=None, max_examples=300)
@given(ANY_REGEX, TEXTS)
def test_what_matches_is_within_the_length_bounds_and_proves_the_regex_not_empty(regex, text):
    if matches(regex, text):
        low, high = length_bounds(regex)
        assert low <= len(text) <= (len(text) if high is None else high)
        assert is_empty(regex) is not True
        assert (found := words(regex, 50)) is None or text in found


@settings(deadline=None, max_examples=200)
@given(ANY_REGEX)
def test_every_listed_word_matches_and_no_other_does(regex):
    found = words(regex, 30)
    if found is not None:
        assert len(set(found)) == len(found) <= 30
        others = both(regex, *(complement(text(word)) for word in found))
        assert all(matches(regex, word) for word in found) and is_empty(others) is True


def test_a_long_nested_repetition_is_matched_in_linear_time():
    assert not matches(parse_full("(a+)+b"), "a" * 20_000)
    assert matches(parse_full("(?:a?){5000}a{5000}"), "a" * 5000)


def test_a_long_text_is_a_regex_like_any_other():
    long = "ab" * 50_000
    regex = text(long)
    assert matches(regex, long) and length_bounds(regex) == (100_000, 100_000)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("[a-m]+", "[n-z]+", True),
        ("[a-n]+", "[n-z]+", False),
        ("a{3,5}", "a{6,9}", True),
        (".*foo", ".*bar", True),
        ("(ab)*", "(ba)*", False),
        ("(ab)+", "(ba)+", True),
    ],
)
def test_disjoint_is_decided(a, b, expected):
    assert are_disjoint(parse_full(a), parse_full(b)) is expected


def test_many_demands_at_once_are_met_within_few_states():
    demands = "".join(f"(?=.*{letter})" for letter in "abcde")
    assert is_empty(parse_full(demands + ".{5,20}"), max_states=100) is False
    assert is_empty(parse_full(demands + ".{0,4}")) is True


def test_what_takes_too_many_states_is_not_decided():
    a, b = parse_full("(?:a|b)*a(?:a|b){12}"), parse_full("(?:a|b)*b(?:a|b){12}")
    assert is_empty(both(a, b), max_states=50) is None or is_empty(both(a, b)) is True
    assert can_always_grow(parse_full("a{600}")) is None
    assert words(parse_full("[^a]"), 100) is None


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [("a*", True), ("a*b", False), ("a{2,}", True), ("[a-z]{1,9}", False), ("a*|b", False)],
)
def test_growing_is_what_no_beginning_can_be_kept_from(pattern, expected):
    assert can_always_grow(parse_full(pattern)) is expected


@pytest.mark.parametrize(
    ("regex", "expected"),
    [
        (parse_full("(a|b)?c{1,2}"), ["ac", "acc", "bc", "bcc", "c", "cc"]),
        (NOTHING, []),
        (EMPTY, [""]),
        (both(parse_full("a*"), parse_full(".{3}")), ["aaa"]),
        (parse_full("a*"), None),
    ],
)
def test_words_are_all_there_are(regex: Regex, expected):
    assert words(regex, 6) == expected


def test_equal_regexes_are_one_object():
    assert parse_full("(?:a|b)c*c") is parse_full("(?:b|a)c+")
    assert sequence(ANYTHING, ANYTHING) is ANYTHING
    assert complement(complement(parse_full("ab"))) is parse_full("ab")


def test_half_a_surrogate_pair_matches_nothing():
    assert not matches(ANYTHING, "\ud800") and not matches(complement(EMPTY), "a\ud800")
