"""Values and keys that can be listed: each at most once, and no more asked for than there are."""

from __future__ import annotations

import json
from enum import Enum
from itertools import permutations, product, takewhile
from typing import Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import TypeAdapter

from structspec.constraint import JsonSchema
from structspec.errors import GrammarError
from tests.grammars.cases import backend


def compiled(schema, **settings):
    return backend("bytes", "llguidance").compile(JsonSchema(schema, **settings))


def takes(grammar, text):
    """Whether this text, and the end after it, may be written."""
    matcher = grammar.matcher()
    return all(map(matcher.accept, text.encode())) and matcher.accept(256)


@pytest.mark.parametrize(
    ("items", "values"),
    [
        ({"type": "boolean"}, [True, False]),
        ({"type": "null"}, [None]),
        ({"const": "a"}, ["a"]),
        ({"enum": [1, True, "1", None]}, [1, True, "1", None]),
        ({"type": ["boolean", "null"]}, [True, False, None]),
        ({"type": "integer", "minimum": -1, "maximum": 1}, [-1, 0, 1]),
        ({"type": "number", "multipleOf": 0.5, "minimum": 0, "maximum": 1}, [0, 0.5, 1]),
        ({"type": "string", "pattern": "^[ab]?$"}, ["", "a", "b"]),
        ({"anyOf": [{"enum": [1, 2]}, {"enum": [2, "b"]}]}, [1, 2, "b"]),
    ],
    ids=str,
)
@pytest.mark.parametrize("closed", [True, False])
def test_items_that_can_be_listed_are_each_written_at_most_once(items, values, closed):
    schema = {"type": "array", "items": items, "uniqueItems": True}
    grammar = compiled(schema, closed=closed)
    assert grammar.report.exact
    for order in permutations(values):
        for length in range(len(values) + 1):
            assert takes(grammar, json.dumps(order[:length]))
    for value in values:
        assert not takes(grammar, json.dumps([value, value]))
        assert not takes(grammar, json.dumps([*values, value]))
    assert takes(compiled({**schema, "minItems": len(values)}), json.dumps(values))
    with pytest.raises(GrammarError, match="no finite value"):
        compiled({**schema, "minItems": len(values) + 1})


@given(st.lists(st.sets(st.sampled_from("abc"), min_size=1), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_items_by_place_are_refused_exactly_where_some_of_them_must_repeat(places):
    schema = {
        "type": "array",
        "prefixItems": [{"enum": sorted(place)} for place in places],
        "minItems": len(places),
        "uniqueItems": True,
    }
    if any(len(set(values)) == len(places) for values in product(*places)):
        compiled(schema)
    else:
        with pytest.raises(GrammarError, match="no finite value"):
            compiled(schema)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": True, "minItems": 3},
        {"type": "array", "items": {"const": 1}, "uniqueItems": True, "minItems": 10**6},
        {"type": "array", "prefixItems": [{"const": 1}] * 2, "uniqueItems": True, "minItems": 2},
        {"type": "object", "propertyNames": {"enum": ["a", "b"]}, "minProperties": 3},
        {"type": "object", "propertyNames": {"const": "a"}, "minProperties": 2},
        {"type": "object", "properties": {"a": {}, "b": {}}, "minProperties": 3},
        {"type": "object", "properties": {"a": {}, "b": False}, "minProperties": 2},
        {"type": "object", "properties": {}, "minProperties": 1},
        {"type": "object", "patternProperties": {"^[ab]$": {}}, "minProperties": 3},
        {
            "type": "object",
            "properties": {"a": {}},
            "additionalProperties": False,
            "minProperties": 2,
        },
    ],
    ids=str,
)
def test_a_count_that_nothing_reaches_is_refused_at_its_place(part):
    with pytest.raises(GrammarError) as caught:
        compiled({"type": "object", "properties": {"p": part}, "required": ["p"]})
    assert caught.value.pointer == "#/properties/p"
    assert "minItems" in str(caught.value) or "minProperties" in str(caught.value)
    assert takes(compiled({"anyOf": [part, {"type": "null"}]}), "null")


VALUES = (True, None, "")
ITEMS = st.sampled_from(
    (
        True,
        False,
        {"type": "boolean"},
        {"type": "null"},
        {"type": ["boolean", "string"], "maxLength": 0},
    )
)
COUNTS = st.fixed_dictionaries(
    {"type": st.just("array"), "contains": ITEMS},
    optional={
        "prefixItems": st.lists(ITEMS, min_size=1, max_size=2),
        "items": ITEMS,
        "minContains": st.integers(0, 2),
        "maxContains": st.integers(0, 2),
        "minItems": st.integers(1, 3),
        "maxItems": st.integers(0, 3),
    },
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(COUNTS)
@example(
    {
        "type": "array",
        "prefixItems": [{"type": "boolean"}],
        "items": {"type": "null"},
        "contains": {"type": "boolean"},
        "minContains": 2,
    }
)
@example({"type": "array", "contains": {"type": "boolean"}, "maxContains": 0})
@example({"type": "array", "contains": True, "minContains": 2, "maxContains": 1})
def test_what_begins_an_array_of_counted_items_can_be_ended_or_is_not_taken(schema):
    judge = Draft202012Validator(schema)
    arrays = [list(values) for n in range(5) for values in product(VALUES, repeat=n)]
    valid = [json.dumps(array) for array in arrays if judge.is_valid(array)]
    if not valid:
        with pytest.raises(GrammarError, match="no finite value"):
            compiled(schema)
    # beside a string its beginning must not lead where there is no end
    matcher = compiled({"anyOf": [schema, {"type": "string"}]}).matcher()
    for array in arrays:
        text = json.dumps(array)
        num_taken = sum(takewhile(bool, map(matcher.accept, text.encode())))
        if len(array) <= 2 and num_taken >= len(text) - 1:
            begun = text[:-1]
            assert any(other.startswith(begun) for other in valid)
        assert (num_taken == len(text) and matcher.accept(256)) == (text in valid)
        matcher.rollback(num_taken + (text in valid))


class Color(Enum):
    RED = "red"
    GREEN = "green"
    BLUE = "blue"


NAMED = [
    {"type": "object", "propertyNames": {"enum": ["red", "green", "blue"]}},
    {"type": "object", "propertyNames": {"pattern": "^(red|green|blue)$"}},
    {"patternProperties": {"^(red|green|blue)$": {}}, "additionalProperties": False},
    TypeAdapter(dict[Color, int]).json_schema(),
    TypeAdapter(dict[Literal["red", "green", "blue"], int]).json_schema(),
]


@pytest.mark.parametrize("schema", NAMED, ids=str)
@pytest.mark.parametrize("order", ["schema", "any"])
def test_keys_that_can_be_listed_come_in_any_order_and_each_at_most_once(schema, order):
    grammar = compiled(schema, property_order=order)
    assert grammar.report.exact
    names = ("red", "green", "blue")
    for length in range(4):
        for chosen in permutations(names, length):
            assert takes(grammar, json.dumps(dict.fromkeys(chosen, 1)))
    for name in (*names, "pink"):
        assert not takes(grammar, f'{{"red": 1, "green": 1, "blue": 1, "{name}": 1}}')
        assert takes(grammar, f'{{"{name}": 1}}') == (name != "pink")


@pytest.mark.parametrize("order", ["schema", "any"])
@pytest.mark.parametrize(("low", "high"), [(0, 2), (1, None), (2, 2), (3, 4), (0, 0)])
@pytest.mark.parametrize("required", [[], ["a"], ["d"]], ids=str)
def test_listed_keys_are_counted_with_those_declared(low, high, order, required):
    schema = {
        "type": "object",
        "properties": {"a": {}, "b": {}},
        "additionalProperties": {"type": "integer"},
        "propertyNames": {"enum": ["a", "b", "c", "d"]},
        "required": required,
        "minProperties": low,
        **({} if high is None else {"maxProperties": high}),
    }
    if high == 0 and required:
        with pytest.raises(GrammarError, match="no finite value"):
            compiled(schema)
        return
    grammar = compiled(schema, property_order=order)
    assert grammar.report.exact
    for length in range(5):
        for names in permutations("abcd", length):
            is_valid = length >= low and (high is None or length <= high)
            is_valid = is_valid and set(required) <= set(names)
            declared = [name for name in names if name in ["a", "b", *required]]
            first = names[: len(declared)]
            is_ordered = list(first) == declared == sorted(declared)
            is_taken = is_valid and (order == "any" or is_ordered)
            assert takes(grammar, json.dumps(dict.fromkeys(names, 1))) == is_taken, names


def test_listed_keys_stand_beside_free_ones():
    schema = {
        "type": "object",
        "patternProperties": {"^(a|b)$": {"type": "integer"}, "^x": {"type": "null"}},
        "additionalProperties": False,
    }
    grammar = compiled(schema)
    assert grammar.report.exact
    assert takes(grammar, '{"x1": null, "b": 1, "x2": null, "a": 1}')
    for text in ('{"a": 1, "a": 1}', '{"x1": null, "x1": null}', '{"a": null}', '{"x": 1}'):
        assert not takes(grammar, text)


def test_where_listed_keys_are_not_told_apart_the_report_says_so():
    grammar = compiled(NAMED[0], style="pretty")
    assert takes(grammar, '{\n  "red": 1,\n  "blue": 2\n}')
    assert {finding.keyword for finding in grammar.report.approximated} == {"propertyNames"}


def test_more_names_than_can_be_told_apart_are_still_taken():
    names = [f"n{index}" for index in range(200)]
    grammar = compiled({"type": "object", "propertyNames": {"enum": names}})
    assert takes(grammar, '{"n199": 1, "n0": 2}')
    assert not takes(grammar, '{"n200": 1}')


@pytest.mark.parametrize("order", ["schema", "any"])
@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("required", [[], ["b"], ["a", "b"]])
@pytest.mark.parametrize("low", [0, 1, 2])
def test_free_keys_count_as_those_declared_do(order, closed, required, low):
    part = {"type": "integer"}
    grammar = compiled(
        {
            "type": "object",
            "properties": {"a": part, "b": part},
            "required": required,
            "minProperties": low,
            "additionalProperties": part,
        },
        property_order=order,
        closed=closed,
    )
    for names in (n for size in range(4) for n in permutations("abx", size)):
        is_valid = len(names) >= low and set(required) <= set(names)
        is_ordered = order == "any" or list(names) == sorted(names)
        text = json.dumps(dict.fromkeys(names, 1))
        if is_valid and is_ordered:
            assert takes(grammar, text)
        elif grammar.report.exact or (not names and low):
            assert not takes(grammar, text)
