"""One reading of a schema's draft: what is written and what is validated are the same values."""

from __future__ import annotations

import json

import jsonschema
import pytest

from structspec.constraint import JsonSchema
from structspec.errors import GrammarError
from structspec.grammars.keyword_values import KINDS, looks_right
from structspec.grammars.schema_reading import read_draft
from structspec.json_value import compile_validator
from tests.grammars.cases import backend

URIS = {
    "4": "http://json-schema.org/draft-04/schema#",
    "6": "http://json-schema.org/draft-06/schema",
    "7": "https://json-schema.org/draft-07/schema#",  # as many write it
    "2019-09": "https://json-schema.org/draft/2019-09/schema",
    "2020-12": "https://json-schema.org/draft/2020-12/schema",
}
VALUES = [
    None, 0, 1, 1.0, 2, 3.5, "", "a", "aa", "YQ==", [], [1], ["a"], ["a", 1], ["a", "b"], [1, "a"],
    ["a", 1, None], [1, 1, "a"], {}, {"a": 1}, {"a": "b"}, {"b": 1}, {"a": 1, "b": 1},
]  # fmt: skip
STRING, INTEGER = {"type": "string"}, {"type": "integer"}
NAMED = {"$id": "#x", "id": "#x", "$anchor": "x", "type": "string"}

# keywords whose meaning, or form, is not that of the newest draft in some older one
CHANGED = {
    "exclusiveMinimum": {"type": "number", "minimum": 1, "exclusiveMinimum": True},
    "exclusiveMaximum": {"type": "number", "maximum": 2, "exclusiveMaximum": True},
    "exclusiveMinimum as a number": {"type": "number", "exclusiveMinimum": 1},
    "integer": INTEGER,
    "integer in a list": {"type": ["integer", "null"]},
    "items as a list": {"type": "array", "items": [STRING, INTEGER]},
    "additionalItems": {"type": "array", "items": [STRING], "additionalItems": INTEGER},
    "additionalItems without a list": {"type": "array", "additionalItems": INTEGER},
    "additionalItems, unevaluated": {"additionalItems": {}, "unevaluatedItems": False},
    "prefixItems": {"type": "array", "prefixItems": [STRING, INTEGER]},
    "prefixItems and items": {"type": "array", "prefixItems": [STRING], "items": INTEGER},
    "prefixItems and no more": {"type": "array", "prefixItems": [STRING], "items": False},
    "not prefixItems and items": {"not": {"prefixItems": [STRING], "items": INTEGER}},
    "contains": {"type": "array", "contains": INTEGER},
    "minContains": {"type": "array", "contains": INTEGER, "minContains": 2},
    "no minContains": {"type": "array", "contains": INTEGER, "minContains": 0},
    "maxContains": {"type": "array", "contains": INTEGER, "maxContains": 1},
    "not minContains": {"not": {"contains": INTEGER, "minContains": 2}},
    "dependencies on keys": {"type": "object", "dependencies": {"a": ["b"]}},
    "dependencies on schemas": {"dependencies": {"a": {"properties": {"a": INTEGER}}}},
    "dependentRequired": {"type": "object", "dependentRequired": {"a": ["b"]}},
    "not dependencies": {"not": {"dependencies": {"a": ["b"]}}},
    "const": {"const": 1},
    "not const": {"not": {"const": 1}},
    "const in oneOf": {"oneOf": [{"const": 1}, {"const": "a"}]},
    "if": {"if": STRING, "then": {"minLength": 2}, "else": INTEGER},
    "propertyNames": {"type": "object", "propertyNames": {"enum": ["a"]}},
    "unevaluatedProperties": {"properties": {"a": {}}, "unevaluatedProperties": False},
    "$ref beside others": {"$ref": "#/definitions/x", "maxLength": 1, "definitions": {"x": STRING}},
    "$ref beside its id": {"allOf": [{"$ref": "#/definitions/x"}], "definitions": {"x": NAMED}},
    "$id as an anchor": {"allOf": [{"$ref": "#x"}], "definitions": {"x": {**STRING, "$id": "#x"}}},
    "id as an anchor": {"allOf": [{"$ref": "#x"}], "definitions": {"x": {**STRING, "id": "#x"}}},
    "$anchor": {"allOf": [{"$ref": "#x"}], "definitions": {"x": {**STRING, "$anchor": "x"}}},
    "id as a base": {
        "id": "http://a.b/c",
        "allOf": [{"$ref": "http://a.b/d"}],
        "definitions": {"x": {**STRING, "id": "d"}},
    },
    "id in the oldest form": {
        "allOf": [{"$ref": "#x"}, {"minimum": 1, "exclusiveMinimum": True}],
        "definitions": {"x": {**INTEGER, "id": "#x"}},
    },
    "$ref in the oldest form": {
        "properties": {"a": {"$ref": "#/definitions/x", "maximum": 0}},
        "definitions": {"x": {"minimum": 0, "exclusiveMinimum": True}},
    },
    "$ref beside a list of items": {
        "properties": {"a": {"$ref": "#/definitions/x", "maximum": 0}},
        "definitions": {"x": {"items": [STRING]}},
    },
    "contentEncoding": {"type": "string", "contentEncoding": "base64"},
    "true": {"properties": {"a": True, "b": False}},
}  # fmt: skip


def refusal(read, *arguments):
    """Where a reading finds a schema wrong, or None and what it gives."""
    try:
        return None, read(*arguments)
    except GrammarError as error:
        return error.pointer, None


@pytest.mark.parametrize("uri", [None, *URIS.values()], ids=["none", *URIS])
@pytest.mark.parametrize("name", CHANGED)
def test_what_is_written_is_what_is_validated_in_each_draft(name, uri):
    schema = CHANGED[name] if uri is None else {"$schema": uri, **CHANGED[name]}
    compile = backend("bytes", "llguidance").compile
    where, grammar = refusal(compile, JsonSchema(schema, closed=False))
    where_checked, violations = refusal(compile_validator, schema)
    if where is not None and where.endswith("$ref"):
        with pytest.raises(GrammarError, match="leads nowhere"):
            violations("a")
        return
    assert where == where_checked
    if grammar is None:
        return
    for value in VALUES:
        matcher = grammar.matcher()
        text = json.dumps(value).encode()
        is_taken = all(map(matcher.accept, text)) and matcher.accept(256)
        is_valid = violations(json.loads(text)) == ()
        assert is_taken == is_valid or (is_taken and not grammar.report.exact), value


@pytest.mark.parametrize(
    ("schema", "draft"),
    [
        (True, "2020-12"),
        ({}, "2020-12"),
        ({"$schema": "http://my.own/meta-schema", "id": "a", "dependencies": {}}, "2020-12"),
        ({"properties": {"items": {"type": "null"}, "exclusiveMinimum": True}}, "2020-12"),
        ({"properties": {"a": {"items": [{}]}}}, "2019-09"),
        ({"$defs": {"a": {"$id": "#a"}}, "items": [{}]}, "7"),
        ({"not": {"maximum": 1, "exclusiveMaximum": False}, "items": [{"$id": "#a"}]}, "4"),
        *(({"$schema": uri}, name) for name, uri in URIS.items()),
    ],
)
def test_a_schema_that_names_no_draft_is_read_in_the_newest_that_knows_its_forms(schema, draft):
    assert read_draft(schema).name == draft


def test_new_and_old_forms_in_one_schema_are_refused():
    for other in ({"exclusiveMaximum": 3}, {"items": {"propertyNames": 3}}):
        with pytest.raises(GrammarError):
            read_draft({"exclusiveMinimum": True, "minimum": 1, **other})


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"properties": {"a": {"required": True}}}, "#/properties/a/required"),
        ({"extends": {}}, "#/extends"),
        ({"items": {"divisibleBy": 2}}, "#/items/divisibleBy"),
        ({"disallow": "string"}, "#/disallow"),
        ({"type": "any"}, "#/type"),
        ({"dependencies": {"a": "b"}}, "#/dependencies"),
    ],
)
def test_what_draft_3_alone_says_is_refused_at_its_place(schema, pointer):
    named = {"$schema": "http://json-schema.org/draft-03/schema#", **schema}
    with pytest.raises(GrammarError) as caught:
        read_draft(named)
    assert caught.value.pointer == pointer
    assert read_draft({"$schema": named["$schema"], "type": "string"}).is_integer_spelled


SAMPLES = [
    None, True, False, 0, 1, 2.0, 2.5, -1, "", "a", "#a", "a#", "a b", "string", [], [1], ["a"],
    ["a", "a"], ["string"], ["string", "string"], [{}], [True], {}, {"a": {}}, {"a": ["b"]},
    {"a": ["b", "b"]}, {"a": 1},
]  # fmt: skip


@pytest.mark.parametrize("keyword", sorted(KINDS))
def test_what_looks_right_is_right_by_the_newest_meta_schema(keyword):
    for value in SAMPLES:
        schema = {keyword: value}
        if looks_right(schema, is_old_draft=False):
            jsonschema.Draft202012Validator.check_schema(schema)
