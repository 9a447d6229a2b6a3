"""JSON read while it is written: for every prefix, what is closed in it and nothing else."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.partial_json import Node, PartialJson

MISSING = object()
TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+(?=[\s,\]}]))')
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner,
                                                                max_size=4),
    max_leaves=12,
)  # fmt: skip


def expected(prefix: str) -> Any:
    """By hand: whole tokens, without a key or a sign that waits, and every bracket closed."""
    tokens = []
    position = 0
    while found := TOKEN.match(prefix, position):
        tokens.append(found[1])
        position = found.end()
    open_brackets: list[str] = []
    for token in tokens:
        if token in "{[":
            open_brackets.append(token)
        elif token in "}]":
            open_brackets.pop()
    if tokens and tokens[-1] == ":":
        tokens.pop()
    is_key = (
        len(tokens) > 1
        and bool(open_brackets)
        and open_brackets[-1] == "{"
        and tokens[-1].startswith('"')
        and tokens[-2] in "{,"
    )
    if is_key:
        tokens.pop()
    if tokens and tokens[-1] == ",":
        tokens.pop()
    closed = {"{": "}", "[": "]"}
    text = "".join(tokens) + "".join(closed[one] for one in reversed(open_brackets))
    return json.loads(text) if text else MISSING


def plain_value(node: Node, reader: PartialJson) -> Any:
    if node.kind == "scalar":
        return json.loads(reader.text_of(node))
    values = [plain_value(child, reader) for child in node.children]
    return dict(zip(node.keys, values, strict=True)) if node.kind == "object" else values


def seen(reader: PartialJson) -> Any:
    return MISSING if reader.root is None else plain_value(reader.root, reader)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(VALUES, st.sampled_from([None, 2]))
def test_of_every_prefix_what_is_closed_is_there_and_nothing_else(
    value: Any, indent: int | None
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    reader = PartialJson()
    for end in range(len(text) + 1):
        if end:
            reader.feed(text[end - 1])
        assert seen(reader) == expected(text[:end])
    reader.finish()
    assert seen(reader) == value
    assert reader.root is not None and reader.root.is_closed


@settings(max_examples=100, deadline=None, derandomize=True)
@given(VALUES, st.lists(st.integers(1, 7), min_size=1, max_size=9), st.booleans())
def test_it_does_not_matter_how_the_text_is_cut(
    value: Any, sizes: list[int], is_ascii: bool
) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii)
    reader = PartialJson()
    position = 0
    for index in range(len(text)):
        size = sizes[index % len(sizes)]
        reader.feed(text[position : position + size])
        position += size
    reader.finish()
    assert seen(reader) == value


def test_feeding_tells_whether_anything_was_opened_or_closed() -> None:
    reader = PartialJson()
    told = [reader.feed(character) for character in '{"a": 12, "b": ["x"]}']
    marks = "".join("^" if changed else "." for changed in told)
    assert marks == "^.......^......^..^^^"


@pytest.mark.parametrize("text", ["{]", '{"a" "b" 1 2', "[1] 2", "{1: 2}", "}", '{"a": [}'])
def test_behind_what_is_no_json_nothing_is_read_and_nothing_raised(text: str) -> None:
    reader = PartialJson()
    reader.feed(text)
    before = reader.num_closed
    assert not reader.feed("[1, 2, 3]")
    assert reader.num_closed == before


class CountingBytes(bytearray):
    """Counts how many bytes are copied out of it."""

    num_read = 0

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        self.num_read += len(found) if isinstance(found, bytearray) else 1
        return found


def test_a_long_string_is_looked_at_once_however_many_pieces_it_comes_in() -> None:
    reader = PartialJson()
    reader.data = CountingBytes()
    reader.feed('["')
    for _ in range(1000):
        reader.feed("abcdefgh")
        assert reader._scanned >= len(reader.data) - 1
    reader.feed('"]')
    assert reader.data.num_read < 5000
