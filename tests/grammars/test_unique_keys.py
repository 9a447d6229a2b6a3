"""Free keys that may not come twice: the scanner, and which tokens a row loses."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from structspec.bitmask import allocate_bitmask, unpack_row
from structspec.constraint import JsonSchema
from structspec.grammars.key_places import Place
from structspec.grammars.llguidance import LLGuidanceBackend, LLGuidanceGrammar
from structspec.grammars.unique_keys import GuardedMatcher
from structspec.vocabulary import Vocabulary

LAW = settings(max_examples=150, deadline=None, derandomize=True)
NAMES = st.sampled_from(["a", "ab", "é", "/", '"', "\\", "😀", "éé"])
# tokens that close a key, hold one, two, one spelled otherwise, or a piece of an escape
PIECES = [
    *(
        b'"a',
        b'a"',
        b'ab"',
        b'"a"',
        b'"ab": ',
        b'"a": 1, "',
        b'": 1, "a": ',
        b'": {"a": ',
        b'"}, "',
    ),
    *(b'"a": 1, "a"', b'a": 1, "a": ', b'", "a": ', b'"]}, "a": ', b'": [], "ab"', b'{"a": {"a": '),
    *(
        rb'"\u00e9"',
        rb'\u00e9"',
        rb'00e9": ',
        rb"\u00",
        rb'\u0022": ',
        rb'"\"": ',
        rb'\"": ',
        rb'"": ',
        rb"\"",
        rb"\"\"",
    ),
    *(
        rb'\ud83d\ude00"',
        rb"\ud83d",
        rb'\ude00"',
        rb'd\ude00": ',
        rb'"\\": ',
        rb'\\"',
        rb'\/"',
        rb'/"',
    ),
    *(
        'é"'.encode(),
        b'\xa9"',
        b'\xc3\xa9\\u00e9"',
        b'\xa9\\u00e9"',
        '"😀": 1, "'.encode(),
        b'\x9f\x98\x80"',
    ),
]


@cache
def vocabulary() -> Vocabulary:
    tokens = [*(bytes((byte,)) for byte in range(256)), *PIECES]
    return Vocabulary((*tokens, None), stop_token_ids=(len(tokens),), encode_text=list_of_bytes)


def list_of_bytes(text: str) -> list[int]:
    return list(text.encode())


@cache
def grammar() -> LLGuidanceGrammar:
    """Any JSON, in every spelling."""
    return LLGuidanceBackend(vocabulary()).compile(JsonSchema(True, closed=False))


def spelled(name: str, draw: Any) -> str:
    return json.dumps(name, ensure_ascii=draw(st.booleans()))


@st.composite
def texts(draw: Any, depth: int = 2) -> str:
    """JSON whose objects may have a key twice, spelled now this way and now that."""
    kind = draw(st.sampled_from(["object", "object", "array", "string", "number"]))
    if kind == "number" or depth == 0:
        return "1"
    if kind == "string":
        return spelled(draw(NAMES), draw)
    values = draw(st.lists(texts(depth - 1), max_size=3))
    if kind == "array":
        return f"[{', '.join(values)}]"
    return "{" + ", ".join(f"{spelled(draw(NAMES), draw)}: {value}" for value in values) + "}"


def keys_repeat(text: str) -> bool:
    """What the json module says, whose hook sees the keys of each object as they are meant."""
    repeats: list[bool] = []

    def see(pairs: list[tuple[str, Any]]) -> None:
        names = [name for name, _ in pairs]
        repeats.append(len(set(names)) < len(names))

    json.loads(text, object_pairs_hook=see)
    return any(repeats)


@LAW
@given(text=texts(), cuts=st.lists(st.integers(0, 80)))
def test_the_scanner_stops_exactly_where_a_key_comes_twice_however_the_text_is_cut(text, cuts):
    data = text.encode()
    ends = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    place: Place | None = Place()
    for start, end in zip(ends, ends[1:], strict=False):
        place = None if place is None else place.after(data[start:end])
    assert (place is None) == keys_repeat(text)


@LAW
@given(text=texts())
@example(text='{"éé": 1, "éé": 1}')
def test_a_row_loses_exactly_the_tokens_that_would_repeat_a_key(text):
    matcher = grammar().matcher()
    assert isinstance(matcher, GuardedMatcher)
    tokens, place = vocabulary().token_bytes, Place()
    bitmask = allocate_bitmask(2, len(tokens))
    for byte in text.encode():
        matcher.inner.fill(bitmask, 0)
        matcher.fill(bitmask, 1)
        free, held = (np.flatnonzero(unpack_row(row, len(tokens))).tolist() for row in bitmask)
        assert held == [i for i in free if place.after(tokens[i] or b"") is not None]
        if not matcher.accept(byte):
            assert place.after(bytes((byte,))) is None
            break
        following = place.after(bytes((byte,)))
        assert following is not None
        place = following


@pytest.mark.parametrize(
    "begun", [r'{"a\"": 1, "a', r'{"\"": 1, "', r'{"é": 1, "\u00e9', '{"a": 1, "']
)
def test_row_and_accept_agree_on_every_token_where_quotes_are_escaped(begun):
    matcher = grammar().matcher()
    assert all(map(matcher.accept, begun.encode()))
    size = vocabulary().vocab_size
    bitmask = allocate_bitmask(1, size)
    matcher.fill(bitmask, 0)
    for token_id, is_allowed in enumerate(unpack_row(bitmask[0], size)):
        assert matcher.accept(token_id) == is_allowed
        matcher.rollback(int(is_allowed))
