"""What closing forbids, what it leaves, and what people who write schemas by hand get wrong."""

from __future__ import annotations

import json

import jsonschema
import pytest

from structspec.constraint import JsonSchema
from structspec.errors import GrammarError
from tests.grammars.cases import backend

CONTACT = {
    "oneOf": [
        {"type": "object", "properties": {"email": {"type": "string"}}, "required": ["email"]},
        {"type": "object", "properties": {"phone": {"type": "string"}}, "required": ["phone"]},
    ]
}


def takes(schema, text, **settings):
    """Whether this text, and the end after it, may be written."""
    matcher = backend("bytes", "llguidance").compile(JsonSchema(schema, **settings)).matcher()
    return all(map(matcher.accept, text.encode())) and matcher.accept(256)


def test_a_closed_object_has_no_key_that_only_breaks_another_branch():
    assert takes(CONTACT, '{"email": "a"}') and takes(CONTACT, '{"phone": "1"}')
    assert not takes(CONTACT, '{"email": "a", "phone": null}')
    assert takes(CONTACT, '{"email": "a", "phone": null}', closed=False)
    assert not takes(CONTACT, '{"email": "a", "phone": "1"}', closed=False)


def test_closing_leaves_the_keys_of_patterns_and_no_others():
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "patternProperties": {"^x-": {"type": "string"}},
    }
    assert takes(schema, '{"a": 1, "x-b": "s"}')
    assert not takes(schema, '{"a": 1, "z": 1}')
    assert takes(schema, '{"a": 1, "z": 1}', closed=False)


def test_an_object_declared_without_properties_is_closed_and_empty():
    assert takes({"type": "object", "properties": {}}, "{}")
    assert not takes({"type": "object", "properties": {}}, '{"a": 1}')
    assert takes({"type": "object"}, '{"a": 1}')


TEXTS = {
    "null": "null",
    "boolean": "true",
    "number": "7",
    "string": '"2024-02-29"',
    "array": "[7]",
    "object": '{"a": 7, "b": 7}',
}
HAS_A = {"properties": {"a": {}}, "required": ["a"]}
HAS_A_B = {"properties": {"a": {}, "b": {}}, "required": ["a"]}
UNTYPED = {
    "object": [
        HAS_A_B,
        {"required": ["a"]},
        {"additionalProperties": {"type": "integer"}},
        {"minProperties": 1},
        {"dependentRequired": {"a": ["b"]}},
        {"allOf": [HAS_A_B, {"properties": {"b": {"type": "integer"}}}]},
        {"$ref": "#/$defs/x", "$defs": {"x": HAS_A_B}},
        {**HAS_A_B, "not": {"type": "string"}},
        {**HAS_A_B, "not": {"const": 1}},
        {"oneOf": [HAS_A_B, {"properties": {"c": {}}, "required": ["c"]}]},
        {"if": HAS_A, "then": HAS_A_B},
    ],
    "array": [{"items": {"type": "integer"}}, {"prefixItems": [{}]}, {"uniqueItems": True}],
    "string": [{"minLength": 3}, {"pattern": "2"}, {"format": "date"}],
    "number": [{"minimum": 0}, {"multipleOf": 7}, {"format": "int32", "maximum": 9}],
    "number or string": [
        {"minLength": 3, "minimum": 0},
        {"allOf": [{"minLength": 3}, {"minimum": 0}]},
        {"anyOf": [{"minLength": 3}, {"minimum": 0}]},
    ],
}


@pytest.mark.parametrize("place", ["root", "property"])
@pytest.mark.parametrize(
    ("types", "schema"), [(types, schema) for types in UNTYPED for schema in UNTYPED[types]]
)
def test_what_states_no_type_is_of_the_type_of_its_keywords(types, schema, place):
    opened, closed, pointer = "", "", "#"
    if place == "property":
        definitions = schema.get("$defs", {})
        schema = {"type": "object", "properties": {"p": schema}, "$defs": definitions}
        opened, closed, pointer = '{"p": ', "}", "#/properties/p"
    taken = {name for name, text in TEXTS.items() if takes(schema, f"{opened}{text}{closed}")}
    assert taken == set(types.split(" or "))
    changes = backend("bytes", "llguidance").report(JsonSchema(schema)).changes
    told = f"{pointer}: no type is stated: {types}, as its keywords say"
    assert told in changes or "oneOf" in json.dumps(schema)  # which excludes the others itself


@pytest.mark.parametrize("schema", [s for kind in UNTYPED.values() for s in kind], ids=str)
def test_to_the_letter_keywords_bind_values_of_their_own_types_only(schema):
    is_valid = jsonschema.Draft202012Validator(schema).is_valid
    for text in TEXTS.values():
        assert takes(schema, text, closed=False) == is_valid(json.loads(text))


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({}, "null boolean number string array object"),
        ({"title": "t", "default": 1}, "null boolean number string array object"),
        ({"items": {}}, "null boolean number string array object"),
        ({"uniqueItems": False}, "null boolean number string array object"),
        ({"format": "int32"}, "null boolean number string array object"),
        ({"type": "string", "allOf": [HAS_A]}, "string"),
        ({"type": ["null", "object"], "allOf": [HAS_A_B]}, "null object"),
        ({"anyOf": [HAS_A_B, {"type": "null"}]}, "null object"),
        ({"anyOf": [{"items": {}, "maxItems": 2}, {"const": 7}]}, "number array"),
        ({"enum": [7, True], "minLength": 3}, "boolean number"),
        ({"not": {"maxLength": 3}}, "string"),
        ({"not": {"required": ["c"]}}, "object"),
        ({"not": {"minLength": 99, "type": "string"}}, "null boolean number string array object"),
        ({"if": {"type": "string"}, "then": {"minLength": 99}}, "null boolean number array object"),
        ({"if": {"required": ["c"]}, "then": {"title": "t"}}, "null boolean number string array"),
        ({"type": ["object", "number"], "if": HAS_A, "then": HAS_A_B}, "number object"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_types_that_are_stated_stay_and_what_says_nothing_stays_open(schema, types):
    is_valid = jsonschema.Draft202012Validator(schema).is_valid
    taken = {name for name, text in TEXTS.items() if takes(schema, text)}
    assert taken - {"object"} == set(types.split()) - {"object"}
    assert all(is_valid(json.loads(TEXTS[name])) for name in taken)


@pytest.mark.parametrize(
    ("value", "is_taken"),
    [
        ({"a": 1, "b": 2}, True),
        ({"a": 1}, False),
        ({"a": 2}, True),
        ({"a": 2, "b": 2}, True),
        ({}, False),
        ({"b": 2}, True),
        (7, False),
    ],
)
def test_a_condition_on_an_object_without_a_type_has_both_its_sides(value, is_taken):
    schema = {
        "properties": {"a": {"enum": [1, 2]}, "b": {"type": "integer"}},
        "if": {"properties": {"a": {"const": 1}}},
        "then": {"required": ["b"]},
    }
    assert takes(schema, json.dumps(value)) == is_taken


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"type": "array", "contains": 5}, "#/contains"),
        ({"if": 5}, "#/if"),
        ({"properties": {"a": {"propertyNames": 3}}}, "#/properties/a/propertyNames"),
        ({"dependentRequired": {"a": "b"}}, "#/dependentRequired/a"),
        ({"unevaluatedProperties": "no"}, "#/unevaluatedProperties"),
        ({"$ref": 5}, "#/$ref"),
        ({"$schema": 5}, "#/$schema"),
        ({"type": "array", "contains": {}, "maxContains": "a"}, "#/maxContains"),
        ({"type": "string", "minLength": 10**12}, "#/minLength"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_keyword_of_a_wrong_kind_is_refused_whatever_draft_might_not_know_it(schema, pointer):
    with pytest.raises(GrammarError) as caught:
        backend("bytes", "llguidance").compile(JsonSchema(schema))
    assert caught.value.pointer == pointer


def test_many_exclusive_conditions_stay_exact():
    branches = [
        {
            "if": {"properties": {"k": {"const": f"t{i}"}}},
            "then": {"properties": {"v": {"const": i}}},
        }
        for i in range(12)
    ]
    schema = {
        "type": "object",
        "properties": {"k": {"enum": [f"t{i}" for i in range(12)]}, "v": {"type": "integer"}},
        "required": ["k", "v"],
        "allOf": branches,
    }
    assert backend("bytes", "llguidance").report(JsonSchema(schema)).exact
    assert takes(schema, '{"k": "t7", "v": 7}')
    assert not takes(schema, '{"k": "t7", "v": 8}')


def test_words_that_are_no_keywords_are_named():
    report = backend("bytes", "llguidance").report(JsonSchema({"type": "string", "minLenght": 3}))
    assert any("minLenght" in change for change in report.changes)


def test_text_beyond_ascii_is_forced_in_closed_objects():
    schema = {"type": "object", "properties": {"straße": {"const": "São"}}, "required": ["straße"]}
    matcher = backend("bytes", "llguidance").compile(JsonSchema(schema)).matcher()
    assert all(map(matcher.accept, b'{"'))
    assert matcher.forced(100).startswith("straße".encode())


def test_a_type_there_is_none_of_is_named_with_those_there_are():
    with pytest.raises(GrammarError, match="'int' is not a type; use one of array, boolean"):
        backend("bytes", "llguidance").compile(JsonSchema({"type": "int"}))


def test_a_class_in_place_of_its_schema_is_told_from_other_values():
    class Model:
        @classmethod
        def model_json_schema(cls) -> dict[str, object]:
            return {}

    with pytest.raises(GrammarError, match="model_json_schema"):
        backend("bytes", "llguidance").compile(JsonSchema(Model))
