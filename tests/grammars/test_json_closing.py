"""What closing forbids, what it leaves, and what people who write schemas by hand get wrong."""

from __future__ import annotations

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


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"type": "array", "contains": 5}, "#/contains"),
        ({"if": 5}, "#/if"),
        ({"properties": {"a": {"propertyNames": 3}}}, "#/properties/a/propertyNames"),
        ({"dependentRequired": {"a": "b"}}, "#/dependentRequired"),
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
