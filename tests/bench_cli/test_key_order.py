"""Keys as the schema declares them, and nothing else changed."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from structspec.bench.cases import Case, Instance
from structspec.bench.key_order import spellings

NAMES = st.sampled_from("abcd")
VALUES = st.recursive(
    st.none() | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)
SCHEMAS = st.recursive(
    st.booleans() | st.just({"$ref": "#"}) | st.builds(dict, required=st.lists(NAMES, max_size=2)),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(NAMES, inner, max_size=4),
            "items": inner,
            "additionalProperties": inner,
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "enum": st.lists(VALUES, max_size=3),
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "if": inner,
            "then": inner,
            "dependencies": st.dictionaries(NAMES, inner | st.lists(NAMES, max_size=2), max_size=2),
        },
    ),
    max_leaves=8,
)


def spell(schema: Any, data: Any, *, is_valid: bool = True) -> list[str]:
    case = Case("", "", (), "json_schema", schema, ())
    return list(spellings(case, Instance(data, False, is_valid)))


@given(SCHEMAS, VALUES)
def test_every_spelling_is_the_same_value(schema, data):
    texts = spell(schema, data)
    assert texts[0] == json.dumps(data)
    assert len(set(texts)) == len(texts)
    assert all(json.loads(text) == data for text in texts)


@given(SCHEMAS, VALUES)
def test_invalid_value_is_tried_as_published_only(schema, data):
    assert spell(schema, data, is_valid=False) == [json.dumps(data)]


def test_declared_keys_come_first_and_in_order():
    schema = {"properties": {"a": {}, "b": {"properties": {"x": {}, "y": {}}}}}
    texts = spell(schema, {"z": 0, "b": {"y": 1, "x": 2}, "a": 3})
    assert texts[1:] == ['{"a": 3, "b": {"x": 2, "y": 1}, "z": 0}']


def test_order_is_found_through_references_items_and_branches():
    schema = {
        "$defs": {"pair": {"anyOf": [{"properties": {"a": {}, "b": {}}}]}},
        "items": {"$ref": "#/$defs/pair"},
    }
    assert spell(schema, [{"b": 1, "a": 2}])[1:] == ['[{"a": 2, "b": 1}]']


def test_branch_of_another_kind_does_not_count():
    schema = {
        "oneOf": [
            {"properties": {"kind": {"const": "cat"}, "b": {}, "a": {}}},
            {"properties": {"kind": {"enum": ["dog"]}, "a": {}, "b": {}}},
        ]
    }
    texts = spell(schema, {"b": 1, "a": 2, "kind": "dog"})
    assert texts[1:] == ['{"kind": "dog", "a": 2, "b": 1}']


def test_both_orders_of_own_and_branch_properties_are_tried():
    schema = {"properties": {"a": {}}, "allOf": [{"properties": {"b": {}}}]}
    texts = spell(schema, {"z": 0, "b": 1, "a": 2})
    assert texts[1:] == ['{"a": 2, "b": 1, "z": 0}', '{"b": 1, "a": 2, "z": 0}']


def test_required_names_that_nothing_declares_follow():
    schema = {"properties": {"a": {}}, "required": ["q", "p"]}
    texts = spell(schema, {"z": 0, "p": 1, "q": 2, "a": 3})
    assert texts[1] == '{"a": 3, "q": 2, "p": 1, "z": 0}'


def test_condition_names_its_keys_and_the_branch_it_chooses_follows():
    schema = {
        "if": {"properties": {"kind": {"const": "cat"}}},
        "then": {"properties": {"b": {}, "a": {}}},
        "else": {"properties": {"a": {}, "b": {}}},
    }
    assert spell(schema, {"b": 1, "a": 2, "kind": "dog"})[1:] == ['{"kind": "dog", "a": 2, "b": 1}']
    assert spell(schema, {"a": 2, "b": 1, "kind": "cat"})[1:] == ['{"kind": "cat", "b": 1, "a": 2}']


def test_names_that_depend_on_one_another_stand_together():
    schema = {"dependentRequired": {"q": ["p"]}}
    assert spell(schema, {"z": 0, "p": 1, "q": 2})[1:] == ['{"q": 2, "p": 1, "z": 0}']


def test_fixed_value_is_written_as_it_stands():
    schema = {"enum": [{"b": True}, {"b": 1, "a": {"d": 2, "c": 3}}]}
    assert spell(schema, {"a": {"c": 3, "d": 2}, "b": 1})[1:] == ['{"b": 1, "a": {"d": 2, "c": 3}}']
