"""Values in the object that they had to be put into: taken out again, piece by piece."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structspec.client.wrapped_text import JsonUnwrapping, StringUnwrapping, Unwrapping

VALUES = st.recursive(
    st.none() | st.integers() | st.text('a}{"\\ :', max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["value", "}"]), inner)
    ),
    max_leaves=6,
)
BLANKS = st.text(" \n", max_size=2)


def read(unwrapping: Unwrapping, text: str, size: int) -> list[str]:
    pieces = [unwrapping.feed(text[at : at + size]) for at in range(0, len(text), size)]
    return [*pieces, unwrapping.finish()]


@given(VALUES, st.tuples(BLANKS, BLANKS, BLANKS, BLANKS, BLANKS), st.integers(1, 9))
def test_a_value_comes_out_as_it_was_put_in(value: Any, blanks: tuple[str, ...], size: int) -> None:
    inner = json.dumps(value)
    a, b, c, d, e = blanks
    text = f'{a}{{{b}"value"{c}:{d}{inner}{e}}}{a}'
    pieces = read(JsonUnwrapping(), text, size)
    assert "".join(pieces).strip() == inner


@given(VALUES)
def test_of_what_has_been_read_only_what_may_be_the_end_is_held(value: Any) -> None:
    unwrapping, inner = JsonUnwrapping(), json.dumps(value)
    unwrapping.feed('{"value": ')
    said = unwrapping.feed(inner)
    assert said in (inner, inner.removesuffix("}"))


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"other": 1}', '{"value"', "free text"])
def test_what_is_no_such_object_stays_as_it_is(text: str) -> None:
    for unwrapping in (JsonUnwrapping(), StringUnwrapping()):
        assert "".join(read(unwrapping, text, 1)) == text


@given(st.text(max_size=5))
def test_a_string_comes_out_without_its_quotes(value: str) -> None:
    assert "".join(read(StringUnwrapping(), json.dumps({"value": value}), 3)) == value
    other = json.dumps({"value": value, "more": 1})
    assert "".join(read(StringUnwrapping(), other, 3)) == other
