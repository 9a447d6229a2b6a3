"""What a pattern's texts may lack, beside all short texts that match."""

from __future__ import annotations

import re
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structspec.ending_widths import Width, shortest_match, width_of_pattern

TEXTS = ["".join(letters) for length in range(7) for letters in product("ab", repeat=length)]
PATTERNS = st.recursive(
    st.sampled_from(["a", "b", "[ab]"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{0,2}"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=4,
)


@given(PATTERNS)
def test_least_is_the_length_of_the_shortest_text(pattern: str) -> None:
    found = [len(text) for text in TEXTS if re.fullmatch(pattern, text)]
    least = width_of_pattern(pattern).least
    assert least == min(found, default=least) and (found or least > 6)


@given(PATTERNS)
def test_no_text_comes_to_lack_more_than_is_said(pattern: str) -> None:
    """What every beginning of a match lacks, by looking for the shortest match behind it."""
    _, lacking, growth = width_of_pattern(pattern)
    matching = [text for text in TEXTS if re.fullmatch(pattern, text)]
    lacks: dict[str, int] = {}
    for text in sorted(matching, key=len, reverse=True):
        lacks |= {text[:length]: len(text) - length for length in range(len(text) + 1)}
    assert max(lacks.values(), default=0) <= lacking
    for begun in filter(None, lacks):
        # one character was written of what was lacking, or of what it has begun
        assert lacks[begun] <= lacks[begun[:-1]] + growth


@pytest.mark.parametrize(
    ("pattern", "width"),
    [
        ("[0-9a-f]{64}", (64, 64, 0)),
        ("[a-z ]*(!b{400})?", (0, 401, 401)),
        (r"(\d{4}-\d\d-\d\d,?)+", (10, 10, 10)),
        ("yes|perhaps", (3, 7, 4)),
        ("x{0}", (0, 0, 0)),
        ("a{100000}", (2048, 2048, 0)),
        (r"(a)\1", (16, 48, 48)),
        ("(", (16, 48, 48)),
    ],
)
def test_widths_that_can_be_counted(pattern: str, width: tuple[int, int, int]) -> None:
    assert width_of_pattern(pattern) == Width(*width)


@given(PATTERNS)
def test_a_shortest_match_is_one(pattern: str) -> None:
    match, least = shortest_match(pattern), width_of_pattern(pattern, is_searched=True).least
    assert match is not None and re.search(pattern, match) and len(match) == least


def test_a_date_somewhere_in_a_text_is_spelled() -> None:
    assert shortest_match(r"\d{4}-\d{2}") == "0000-00"
    assert shortest_match(r"(a)\1") is None
    assert shortest_match("a{201}") is None


def test_what_is_searched_for_may_stand_anywhere() -> None:
    assert width_of_pattern("^[0-9]{3}$", is_searched=True) == (3, 3, 0)
    assert width_of_pattern("ab", is_searched=True).least == 2
