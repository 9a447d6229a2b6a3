"""Schemas within OpenAI's strict mode: narrower than they were, never wider where it counts."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from structspec.client.strict import NotStrict, to_strict

LEAVES = st.sampled_from(
    [{"type": "string"}, {"type": "integer", "minimum": 2}, {"enum": ["a", 1]}, {"const": None}]
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        inner.map(lambda items: {"type": "array", "items": items}),
        st.lists(inner, min_size=1, max_size=2).map(lambda options: {"anyOf": options}),
        st.dictionaries(st.sampled_from("ab/~"), inner, min_size=1, max_size=3).map(
            lambda properties: {"type": "object", "properties": properties}
        ),
    ),
    max_leaves=6,
)
VALUES = st.recursive(
    st.sampled_from(["a", "b", 1, 3, None]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab/~"), inner),
    max_leaves=6,
)


@given(SCHEMAS, VALUES)
def test_what_the_strict_schema_admits_the_schema_admits(schema: Any, value: Any) -> None:
    strict = to_strict(schema)
    given_value = {"value": value} if strict.is_wrapped else value
    if jsonschema.Draft202012Validator(strict.schema).is_valid(given_value):
        assert jsonschema.Draft202012Validator(schema).is_valid(value)
    assert not strict.dropped


@given(SCHEMAS)
def test_every_object_is_closed_and_has_all_its_properties(schema: Any) -> None:
    waiting: list[Any] = [to_strict(schema).schema]
    assert waiting[0]["type"] == "object"
    while waiting:
        part = waiting.pop()
        if part.get("type") == "object":
            assert part["additionalProperties"] is False
            assert part["required"] == list(part["properties"])
        waiting += [*part.get("properties", {}).values(), *part.get("anyOf", ())]
        waiting += [part["items"]] if "items" in part else []


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"type": "array"},
        {"type": "array", "prefixItems": [{"type": "integer"}]},
        {"type": ["object", "null"], "properties": {"a": {"type": "integer"}}},
        {"type": "object", "properties": {"a": True}},
        {"type": "object", "properties": {"a": {"$ref": "#"}}},
    ],
)
def test_what_strict_mode_has_no_form_of_is_told(schema: Any) -> None:
    with pytest.raises(NotStrict):
        to_strict(schema)


def test_keywords_that_had_to_go_are_named_by_their_place() -> None:
    schema = {
        "type": "object",
        "properties": {"a/b": {"type": "string", "maxLength": 3, "title": "A"}},
        "$defs": {"x": {"oneOf": [{"type": "string", "format": "idn-email"}]}},
    }
    strict = to_strict(schema)
    assert set(strict.dropped) == {
        "#/properties/a~1b/maxLength",
        "#/$defs/x/oneOf",
        "#/$defs/x/oneOf/0/format",
    }


def test_a_tuple_becomes_as_many_items_of_any_of_its_kinds() -> None:
    pair = {"prefixItems": [{"type": "boolean"}, {"type": "integer"}], "minItems": 2, "maxItems": 2}
    strict = to_strict({"type": "array", **pair})
    validator = jsonschema.Draft202012Validator(strict.schema["properties"]["value"])
    assert validator.is_valid([True, 3]) and validator.is_valid([3, True])
    assert not validator.is_valid([True]) and not validator.is_valid([True, "x"])
    assert strict.dropped == ["#/prefixItems"]
