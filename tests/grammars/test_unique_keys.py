"""Free keys that may not come twice: the scanner, and which tokens a row loses."""

from __future__ import annotations

import json
from functools import cache
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from structspec.bitmask import allocate_bitmask, unpack_row
from structspec.constraint import JsonSchema, StructuralTag
from structspec.grammars.base import FillJob, Matcher
from structspec.grammars.key_places import Place
from structspec.grammars.llguidance import LLGuidanceBackend, LLGuidanceGrammar
from structspec.grammars.unique_keys import GuardedMatcher
from structspec.grammars.xgrammar import XGrammarBackend
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


FREE = (
    True,
    {"type": "object"},
    {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 2},
    {"type": "object", "properties": {"ab": {}}, "additionalProperties": {"type": "null"}},
    {"type": "array"},
    {"type": "array", "items": {"type": "object", "minProperties": 1, "maxProperties": 3}},
    {"type": "array", "prefixItems": [{"type": "null"}], "minItems": 2},
    {"anyOf": [{"type": "null"}, {"type": "object", "minProperties": 2}]},
)
DECLARED = (
    {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False},
    {"type": "array", "items": {"type": "integer"}},
    {"enum": [{"a": 1}, 2]},
)


@cache
def xgrammar_backend() -> XGrammarBackend:
    return XGrammarBackend(vocabulary())


def bytes_written(matcher: Matcher, random: Random) -> bytes | None:
    """A text whose strings are short: of a few letters, so that keys would often come again."""
    stop = vocabulary().stop_token_ids[0]
    bitmask, data = allocate_bitmask(1, stop + 1), bytearray()
    for _ in range(120):
        matcher.fill(bitmask, 0)
        allowed = np.flatnonzero(unpack_row(bitmask[0], stop + 1)).tolist()
        likely = [i for i in allowed if i > 255 or bytes((i,)) in b'a"{}[], :1n']
        token_id = stop if stop in allowed else random.choice(likely or allowed)
        assert matcher.accept(token_id)
        if token_id == stop:
            return bytes(data)
        data += vocabulary().token_bytes[token_id] or b""
    return None


@pytest.mark.parametrize("is_unpacked", [False, True])
@pytest.mark.parametrize("schema", FREE, ids=str)
def test_no_key_comes_twice_with_xgrammar_either(schema, is_unpacked):
    made = xgrammar_backend().compile(JsonSchema(schema, closed=False))
    if is_unpacked:
        made = xgrammar_backend().unpack(made.pack())
    for seed in range(40):
        text = bytes_written(made.matcher(), Random(seed))
        assert text is None or not keys_repeat(text.decode()), text


def test_rows_that_xgrammar_fills_at_once_lose_repeats_too():
    made = xgrammar_backend().compile(JsonSchema(FREE[2], closed=False))
    matchers = [made.matcher() for _ in range(3)]
    for matcher in matchers:
        assert all(map(matcher.accept, b'{"a": 1, "a'))
    size = vocabulary().vocab_size
    bitmask, alone = allocate_bitmask(4, size), allocate_bitmask(1, size)
    jobs = [FillJob(matcher, row, ()) for row, matcher in enumerate(matchers)]
    assert made.backend.fill_drafts(jobs, bitmask) == [0, 0, 0]
    matchers[0].fill(alone, 0)
    for row in range(3):
        np.testing.assert_array_equal(bitmask[row], alone[0])
    assert not unpack_row(alone[0], size)[ord('"')]
    draft = FillJob(matchers[0], 0, b'"')
    assert made.backend.fill_drafts([draft, *jobs[2:]], bitmask)[0] == 0


@pytest.mark.parametrize("schema", DECLARED, ids=str)
def test_where_no_key_is_free_xgrammar_s_matchers_are_not_guarded(schema):
    made = xgrammar_backend().compile(JsonSchema(schema, closed=False))
    assert not isinstance(made.matcher(), GuardedMatcher)
    assert made.report.exact


def test_a_map_of_undeclared_keys_is_exact_with_xgrammar_but_not_inside_a_tag():
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    assert xgrammar_backend().report(JsonSchema(schema)).exact
    tag = {"format": {"type": "json_schema", "json_schema": schema}}
    assert not xgrammar_backend().report(StructuralTag(tag)).exact
