"""The text of JSON: spellings of strings, white space, keys that come twice, the order of keys.

Whatever the mask lets through is JSON of the style that was asked for, and every spelling that JSON
has for a value can be written where a schema does not forbid it.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.bitmask import allocate_bitmask, unpack_row
from structspec.constraint import JsonSchema
from structspec.grammars.base import Matcher
from structspec.json_value import compile_validator, parse_json
from structspec.vocabulary import Vocabulary
from tests.grammars.cases import VOCABULARIES, backend
from tests.grammars.json_texts import (
    BLANKS,
    NAMES,
    SEPARATORS,
    has_style,
    matcher_of,
    pairs,
    spelled,
    takes,
    written_in,
)

LAW = settings(max_examples=60, deadline=None, derandomize=True)
STYLES = ("spaced", "compact", "pretty", "flexible")


# Strings


@LAW
@given(data=st.data(), text=st.text(max_size=8))
def test_a_string_may_be_spelled_in_every_way_that_json_has(data, text):
    literal = data.draw(spelled(text))
    assert json.loads(literal) == text
    assert takes(matcher_of({"type": "string"}), literal)


@LAW
@given(
    data=st.data(), text=st.text(max_size=6), bounds=st.tuples(st.integers(0, 6), st.integers(0, 6))
)
def test_length_counts_characters_however_they_are_spelled(data, text, bounds):
    low, high = sorted(bounds)
    schema = {"type": "string", "minLength": low, "maxLength": high}
    literal = data.draw(spelled(text))
    assert takes(matcher_of(schema), literal) == (low <= len(text) <= high)


@pytest.mark.parametrize("literal", ['"😀"', r'"\ud83d\ude00"', r'"\uD83D\uDE00"', r'"\n"', '"é"'])
def test_each_of_these_is_one_character(literal):
    assert takes(matcher_of({"type": "string", "minLength": 1, "maxLength": 1}), literal)
    assert not takes(matcher_of({"type": "string", "minLength": 2}), literal)
    assert takes(matcher_of({"type": "string", "pattern": "^.?\\s?$", "maxLength": 1}), literal)


STRINGS = {
    "free": {"type": "string"},
    "bounded": {"type": "string", "minLength": 1, "maxLength": 9},
    "pattern": {"type": "string", "pattern": "^[^%]*$"},
    "bounded-pattern": {"type": "string", "pattern": "[^%]", "maxLength": 9},
    "excluded": {"type": "string", "not": {"const": "%"}},
    "free-json": True,
}


@pytest.mark.parametrize("schema", STRINGS.values(), ids=STRINGS)
@LAW
@given(text=st.text(min_size=1, max_size=9).map(lambda text: text.replace("%", "_")))
def test_what_json_dumps_writes_for_a_string_is_taken_with_and_without_escapes(schema, text):
    matcher = matcher_of(schema)
    assert takes(matcher, json.dumps(text))
    assert takes(matcher, json.dumps(text, ensure_ascii=False))


@pytest.mark.parametrize("schema", STRINGS.values(), ids=STRINGS)
@pytest.mark.parametrize(
    "inside",
    [
        *(
            rb"\ud83d",
            rb"\ude00",
            rb"\ude00\ud83d",
            rb"\ud83d\u0041",
            rb"\ud83dx",
            rb"\uDBFF\uDBFF",
        ),
        *("\ud83d".encode("utf-8", "surrogatepass"), "\udc80".encode("utf-8", "surrogatepass")),
        *(b"\xff", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\x80", b"\xe6\x97"),
        *(
            b"\n",
            b"\t",
            b"\x00",
            b"\x1f",
            rb"\a",
            rb"\'",
            rb"\x41",
            rb"\u12",
            rb"\u00g0",
            rb"\U0041",
        ),
        b'"',
    ],
    ids=repr,
)
def test_no_half_character_no_raw_control_and_no_unknown_escape_gets_into_a_string(schema, inside):
    matcher = matcher_of(schema)
    assert takes(matcher, b'"ab"')
    assert not takes(matcher, b'"a%sb"' % inside)


# Numbers


@pytest.mark.parametrize("schema", [True, {"type": "number"}])
@LAW
@given(value=st.floats(-1.78e308, 1.78e308) | st.integers(-(10**40), 10**60))
def test_every_number_is_written_as_json_dumps_writes_it(schema, value):
    assert takes(matcher_of(schema), json.dumps(value))


@pytest.mark.parametrize("schema", [True, {"type": "number"}, {"type": "number", "maximum": 5}])
@pytest.mark.parametrize(
    ("text", "is_taken"),
    [
        *((f"-{text}", True) for text in ("5e-99999", "1.5E+00300", "1e308")),
        ("-1.7976931348623157e308", True),
        *((f"-{text}", False) for text in ("1e309", "1.8e308", "12e307", "9E0999", "1e99999")),
    ],
)
def test_numbers_too_large_for_a_float_are_not_written(schema, text, is_taken):
    assert takes(matcher_of(schema, closed=False), text) == is_taken


# Keys


def other_spellings(name: str) -> st.SearchStrategy[str]:
    """Literals for a name that are not what `json.dumps` writes."""
    usual = {json.dumps(name), json.dumps(name, ensure_ascii=False)}
    return spelled(name).filter(lambda literal: literal not in usual)


@LAW
@given(data=st.data(), name=st.sampled_from([name for name in NAMES if name]))
@pytest.mark.parametrize("order", ["schema", "any"])
def test_no_spelling_of_a_declared_key_leads_round_its_schema(order, data, name):
    schema = {
        "type": "object",
        "properties": {name: {"type": "integer"}, "z": {"type": "null"}},
        "additionalProperties": {"type": "string"},
    }
    matcher = matcher_of(schema, property_order=order)
    literal = data.draw(spelled(name))
    assert takes(matcher, f'{{{written_in("spaced", name)}: 1, "z": null, "x": "s"}}')
    assert not takes(matcher, f'{{{literal}: "s"}}')
    assert not takes(matcher, f'{{"x": "s", {literal}: "s"}}')
    for first in (written_in("spaced", name), json.dumps(name)):
        assert not takes(matcher, f"{{{first}: 1, {literal}: 1}}")
        assert not takes(matcher, f'{{{first}: 1, {literal}: "s"}}')


@LAW
@given(data=st.data(), name=st.sampled_from(("a", "name", 'q"u\\o', "sl/ash", "new\nline")))
def test_a_declared_key_is_written_in_one_way(data, name):
    schema = {"type": "object", "properties": {name: {"type": "integer"}}}
    matcher = matcher_of(schema)
    assert takes(matcher, f"{{{json.dumps(name)}: 1}}")
    assert not takes(matcher, f"{{{data.draw(other_spellings(name))}: 1}}")


@LAW
@given(data=st.data(), keys=st.lists(st.text(max_size=3), min_size=2, max_size=4, unique=True))
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"type": "object", "patternProperties": {"": {"type": "integer"}}},
        {"type": "object", "propertyNames": {"not": {"const": "%%%%"}}},
        True,
    ],
    ids=["additional", "pattern", "names", "anything"],
)
def test_a_free_key_comes_once_in_whatever_spelling(schema, data, keys):
    matcher = matcher_of(schema)
    members = [f"{json.dumps(key, ensure_ascii=data.draw(st.booleans()))}: 1" for key in keys]
    assert takes(matcher, f"{{{', '.join(members)}}}")
    again = json.dumps(data.draw(st.sampled_from(keys)), ensure_ascii=data.draw(st.booleans()))
    assert not takes(matcher, f"{{{', '.join([*members, f'{again}: 1'])}}}")


def test_the_same_key_may_come_in_every_object():
    matcher = matcher_of({"type": "object"})
    assert takes(matcher, '{"a": {"a": [{"a": 1}, {"a": 2}]}, "b": {"a": 1}}')
    assert not takes(matcher, '{"a": {"a": 1, "b": [], "a": 2}}')
    assert not takes(matcher, '{"a": {"b": {}}, "a": 2}')
    assert not takes(matcher, '[{"x": {}, "x": 1}]')


@LAW
@given(data=st.data(), order=st.permutations(["a", "é", "n", "o", "p"]))
@pytest.mark.parametrize("has_free_keys", [False, True])
def test_any_order_reaches_every_permutation_with_what_is_required_once(has_free_keys, data, order):
    schema = {
        "type": "object",
        "properties": {name: {"type": "integer"} for name in ("a", "é", "n", "o", "p")},
        "required": ["n", "é"],
        "additionalProperties": {"type": "null"} if has_free_keys else False,
    }
    matcher = matcher_of(schema, property_order="any")
    present = [name for name in order if name in "né" or data.draw(st.booleans())]
    members = [f'"{name}": {i}' for i, name in enumerate(present)]
    assert takes(matcher, f"{{{', '.join(members)}}}")
    place = data.draw(st.integers(0, len(members)))
    free = [*members[:place], '"free": null', *members[place:]]
    assert takes(matcher, f"{{{', '.join(free)}}}") == has_free_keys
    again = data.draw(st.sampled_from(members))
    assert not takes(matcher, f"{{{', '.join([*members, again])}}}")
    missing = data.draw(st.sampled_from(["n", "é"]))
    left = [member for member in members if not member.startswith(f'"{missing}"')]
    assert not takes(matcher, f"{{{', '.join(left)}}}")


def test_any_order_holds_in_objects_within_objects():
    inner = {"type": "object", "properties": {"x": {}, "y": {}}, "required": ["x"]}
    schema = {"type": "object", "properties": {"p": inner, "q": {"items": inner}}}
    matcher = matcher_of(schema, property_order="any")
    assert takes(matcher, '{"q": [{"y": 1, "x": 2}, {"x": 1, "y": 2}], "p": {"y": {}, "x": []}}')
    assert not takes(matcher, '{"q": [{"y": 1}]}')
    assert not takes(matcher, '{"p": {"x": 1, "x": 2}}')


# White space


@pytest.mark.parametrize("style", SEPARATORS)
@LAW
@given(pair=pairs())
def test_a_value_is_written_as_json_dumps_writes_it_in_that_style_and_in_no_other(style, pair):
    schema, value = pair
    matcher = matcher_of(schema, style=style)
    text = written_in(style, value)
    assert takes(matcher, text)
    # to the letter of JSON Schema keys and constants take escapes as well
    to_the_letter = matcher_of(schema, style=style, closed=False)
    assert takes(to_the_letter, written_in(style, value, ensure_ascii=True))
    for other in SEPARATORS:
        assert takes(matcher, written_in(other, value)) == (written_in(other, value) == text)


RECURSIVE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "v": {"type": "integer"},
                "next": {"$ref": "#/$defs/node"},
                "all": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
        }
    },
    "$ref": "#/$defs/node",
}


@pytest.mark.parametrize("style", SEPARATORS)
@pytest.mark.parametrize(
    "value",
    [
        {},
        {"all": []},
        {"v": 1, "next": {"v": 2, "next": {}, "all": [{}, {"all": [{"v": 3}]}]}},
        {"next": {"next": {"next": {"next": {"next": {"all": [{}]}}}}}},
    ],
    ids=["empty", "empty-inside", "mixed", "deep"],
)
def test_recursion_is_indented_as_deep_as_it_goes(style, value):
    assert takes(matcher_of(RECURSIVE, style=style), written_in(style, value))


def put_blanks(text: str, draw: Any, most: int = 8) -> str:
    """The same JSON with blanks around its signs; strings without signs alone."""
    pieces = []
    for index, character in enumerate(text):
        before = character in ",:]}" and text[index - 1] not in "[{,:"
        after = character in "[{,:"
        blanks = [
            draw(st.text(BLANKS, max_size=most)) if where else "" for where in (before, after)
        ]
        pieces.append(f"{blanks[0]}{character}{blanks[1]}")
    return "".join(pieces)


@LAW
@given(data=st.data())
def test_flexible_takes_up_to_8_blanks_wherever_json_has_room(data):
    schema = {"type": "object", "properties": {"a": {"type": "array"}, "b": {"type": "object"}}}
    text = data.draw(
        st.sampled_from(["{}", '{"a":[]}', '{"a":[1,[2,3],{}],"b":{"k":{"l":"s"}}}', '{"b":{}}'])
    )
    matcher = matcher_of(schema, style="flexible")
    assert takes(matcher, put_blanks(text, data.draw))
    assert not takes(matcher, data.draw(st.sampled_from(BLANKS)) + text)
    assert not takes(matcher, text + data.draw(st.sampled_from(BLANKS)))


@pytest.mark.parametrize("blanks", ["\t" * 9, "\n" + " " * 8], ids=["tabs", "line"])
@pytest.mark.parametrize(
    "text", ["{_}", '{_"a":1}', '{"a"_:1}', '{"a":_1}', '{"a":1_}', '{"a":1_,"b":2}', '{"a":[_]}']
)
def test_flexible_never_takes_9_blanks_in_a_row(text, blanks):
    matcher = matcher_of({"type": "object"}, style="flexible")
    assert takes(matcher, text.replace("_", blanks[:8]))
    assert not takes(matcher, text.replace("_", blanks))


@pytest.mark.parametrize("style", ["spaced", "compact", "pretty"])
def test_a_style_is_kept_in_json_that_no_schema_describes(style):
    value = {"a": [1, {"b": [], "c": {}}], "d": {"e": None}}
    matcher = matcher_of(True, style=style)
    for other in SEPARATORS:
        assert takes(matcher, written_in(other, value)) == (other == style)


# Everything the mask lets through


def row_of(matcher: Matcher, vocabulary: Vocabulary) -> np.ndarray:
    bitmask = allocate_bitmask(1, vocabulary.vocab_size)
    matcher.fill(bitmask, 0)
    return np.flatnonzero(unpack_row(bitmask[0], vocabulary.vocab_size))


def walk(matcher: Matcher, vocabulary: Vocabulary, random: Random, num_free: int) -> bytes | None:
    """A text the mask led to: freely at first, with a liking for escapes, then to an end."""
    written: list[int] = []
    for step in range(600):
        allowed = [int(i) for i in row_of(matcher, vocabulary)]
        stops = [i for i in allowed if i in vocabulary.stop_token_ids]
        if step >= num_free or random.random() < 0.2:
            ends = stops or [i for i in allowed if ENDING.get(vocabulary.token_bytes[i])]
        else:
            ends = [i for i in allowed if (vocabulary.token_bytes[i] or b"")[:1] in (b"\\", b'"')]
            ends = ends if random.random() < 0.3 else []
        token_id = random.choice(ends or allowed)
        assert matcher.accept(token_id)
        if token_id in vocabulary.stop_token_ids:
            return vocabulary.decode_bytes(written)
        written.append(token_id)
    return None


ENDING = dict.fromkeys((b'"', b"}", b"]", b'"}', b'"]', b"]}", b"}}", b"0"), True)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", ["bytes", "smollm2"])
@settings(LAW, max_examples=25)
@given(pair=pairs(), seed=st.integers(0, 10**9))
def test_every_text_the_mask_lets_through_is_json_of_its_schema_and_style(name, style, pair, seed):
    schema, _ = pair
    vocabulary = VOCABULARIES[name]()
    compiled = backend(name, "llguidance").compile(JsonSchema(schema, style=style))
    data = walk(compiled.matcher(), vocabulary, Random(seed), num_free=seed % 60)
    if data is None:
        return
    text = data.decode()
    value = parse_json(text)
    assert json.loads(text) == value
    assert has_style(style, text), text
    assert schema is True or compile_validator(schema)(value) == ()
