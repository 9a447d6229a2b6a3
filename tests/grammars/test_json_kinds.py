"""Kinds of schema that a random search found to go wrong; each was wrong once."""

from __future__ import annotations

import json
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher

from structspec.constraint import Choice, JsonSchema, Regex, Tools
from structspec.errors import GrammarError, UnsupportedConstraint
from structspec.grammars.llguidance_lowering import Lowered, lower
from tests.fuzz.judge import accepts, spelled
from tests.grammars.cases import backend


def compiled(schema, **settings):
    return backend("bytes", "llguidance").compile(JsonSchema(schema, closed=False, **settings))


def takes(schema, value, **settings):
    """Whether the value can be written as `json.dumps` writes it."""
    return accepts(compiled(schema, **settings), spelled(value))


@pytest.mark.parametrize(
    ("schema", "limit", "others"),
    [
        ({"exclusiveMinimum": 1e20}, 1e20, [1.5e20, 1e21, 10**20 + 1]),
        ({"exclusiveMaximum": -1e20}, -1e20, [-1.5e20, -1e21, -(10**20) - 1]),
        ({"exclusiveMinimum": 1000}, 1000, [1000.5, 1001, 2000]),
    ],
)
def test_an_open_limit_that_is_a_power_of_ten_is_left_out_in_every_spelling(schema, limit, others):
    grammar = compiled(schema)
    whole = str(int(limit))
    power = f"{whole.rstrip('0')}e{whole.count('0')}"
    for text in (whole, f"{whole}.0", power, power.replace("e", ".0e+")):
        assert not accepts(grammar, text), text
    for value in others:
        assert accepts(grammar, spelled(value)), value


@pytest.mark.parametrize("schema", [{"const": {"a": 2}}, {"enum": [[1], {"a": {"b": 2}}]}])
def test_what_is_lost_within_a_value_is_reported_of_the_keyword_that_lists_it(schema):
    (keyword,) = schema
    approximated = compiled({"not": schema}).report.approximated
    assert {(f.pointer, f.keyword) for f in approximated} == {("#/not", keyword)}


def test_a_single_declared_key_may_stand_anywhere_among_free_keys():
    schema = {"required": ["b"]}
    for value in ({"a": 1, "b": 2, "c": 3}, {"b": 1, "a": 2}, {"a": 1, "b": 2}):
        assert takes(schema, value, property_order="any")
    for value in ({}, {"a": 1}):
        assert not takes(schema, value, property_order="any")


def test_a_value_that_is_listed_describes_no_part_of_itself():
    schema = {"enum": [[1], {"a": 1}, 2], "unevaluatedItems": False, "unevaluatedProperties": False}
    assert takes(schema, 2)
    assert not takes(schema, [1])
    assert not takes(schema, {"a": 1})


def test_contains_is_held_where_there_is_room_for_one_item_that_must_be_unique():
    schema = {"type": "array", "maxItems": 1, "uniqueItems": True, "contains": {"type": "integer"}}
    assert takes(schema, [1])
    assert not takes(schema, [])
    assert not takes(schema, ["a"])


@pytest.mark.parametrize("start", [rb'{"\u00', rb'{"\ud83d', b'{"\\n\xc3', b'{"\\'])
def test_a_quote_within_an_unfinished_character_of_a_free_key_is_refused(start):
    matcher = compiled({"type": "object"}).matcher()
    assert all(map(matcher.accept, start))
    is_finished = start.endswith(b"\\")  # the quote is what is escaped
    assert matcher.accept(ord('"')) == is_finished


NOT_WHOLE = {"type": "number", "not": {"type": "integer"}}


@pytest.mark.parametrize(
    "text", ["1.5", "-0.25", "0.30000000000000004", "123456789.125", "0.9999999999999999", "5e-07"]
)
def test_a_number_that_is_not_whole_may_be_written(text):
    assert accepts(compiled(NOT_WHOLE), text)


@pytest.mark.parametrize(
    "text", ["1.0", "0.99999999999999999", "2.99999999999999999999", "123456789012345678.5", "1e2"]
)
def test_a_number_whose_float_is_whole_is_whole(text):
    assert float(text).is_integer()
    assert not accepts(compiled(NOT_WHOLE), text)


@given(st.floats(-1e6, 1e6) | st.floats(-1, 1))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_floats_that_are_not_whole_may_be_written_as_python_writes_them(value):
    is_tiny = 0 < abs(value) < 1e-99
    assert is_tiny or accepts(compiled_once(), json.dumps(value)) != value.is_integer()


@cache
def compiled_once():
    return compiled(NOT_WHOLE)


@pytest.mark.parametrize(
    "nothing",
    [
        {"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 2},
        {"type": "number", "multipleOf": 2, "exclusiveMinimum": 2, "exclusiveMaximum": 4},
        {"type": "number", "multipleOf": 1, "not": {"type": "integer"}},
        {"type": "integer", "minimum": 1, "maximum": 2, "not": {"enum": [1, 2]}},
        {"type": "string", "pattern": "^a$", "minLength": 2},
        {"type": "string", "pattern": "^a", "allOf": [{"pattern": "^b"}]},
        {"type": "string", "format": "date", "maxLength": 2},
        {"type": "array", "contains": {"type": "string", "pattern": "a^"}},
    ],
)
def test_a_part_without_a_value_is_not_begun(nothing):
    part = {"type": "object", "properties": {"a": nothing}, "required": ["a"]}
    assert accepts(compiled({"anyOf": [part, {"type": "null"}]}), "null")
    assert not compiled({"anyOf": [part, {"type": "null"}]}).matcher().accept(ord("{"))
    with pytest.raises(GrammarError, match="no finite value"):
        compiled(part)


def test_an_optional_part_without_a_value_is_left_out():
    nothing = {"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 2}
    schema = {"type": "object", "properties": {"a": nothing, "b": {}}}
    assert takes(schema, {"b": 1})
    assert not accepts(compiled(schema), '{"a": 1}')


@pytest.mark.parametrize("fixed", [{"enum": [1, 2.5]}, {"minimum": 1, "maximum": 1}])
def test_a_listed_integer_is_spelled_as_one_where_the_draft_asks_for_it(fixed):
    old = {"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer", **fixed}
    assert accepts(compiled(old), "1")
    assert not accepts(compiled(old), "1.0")
    assert accepts(compiled({"type": "integer", **fixed}), "1.0")


@pytest.mark.parametrize("limit", [1e17, 1e18, 1e20, 1e300])
def test_multiples_within_limits_beyond_the_library_are_reported(limit):
    schema = {"type": "number", "multipleOf": 0.5, "minimum": -limit, "maximum": limit}
    assert takes(schema, 2.5)
    report = compiled(schema).report
    assert report.exact or {f.keyword for f in report.approximated} == {"multipleOf"}


@pytest.mark.parametrize("pattern", ["^$", "", "^", "$", "a?", "^(a|)$"])
def test_a_pattern_may_find_the_empty_string(pattern):
    schema = {"type": "string", "pattern": pattern}
    assert takes(schema, "")
    assert takes(schema, "b") == (not (pattern.startswith("^") and pattern.endswith("$")))


@pytest.mark.parametrize(
    "constraint",
    [JsonSchema({"type": "string"}), Tools(({"name": "f"},)), Choice(("a",)), Regex("a")],
    ids=lambda constraint: type(constraint).__name__,
)
def test_a_place_in_what_was_made_of_a_constraint_is_none_of_its_own(constraint, monkeypatch):
    broken = LLMatcher.grammar_from_lark("start: A\nA: /(/\n")
    made = lower(constraint)
    monkeypatch.setattr(
        "structspec.grammars.llguidance.lower", lambda *_: Lowered(broken, made.report)
    )
    with pytest.raises(UnsupportedConstraint, match="llguidance cannot hold") as caught:
        backend("bytes", "llguidance").compile(constraint)
    assert (caught.value.line, caught.value.column) == (None, None)
    assert caught.value.pointer == (None if isinstance(constraint, Regex) else "#")
