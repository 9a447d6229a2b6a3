"""JSON schemas: what is written, what is refused and where, what the report says."""

from __future__ import annotations

import json

import pytest

from structspec.constraint import JsonSchema
from structspec.errors import GrammarError, UnsupportedConstraint
from structspec.schema import resolve_schema
from tests.grammars.cases import PERSON, backend
from tests.grammars.test_real_world_schemas import accepts

LIBRARIES = pytest.mark.parametrize("library", ["llguidance", "xgrammar"])
VALUE = {"name": "Zoë", "age": 7, "tags": ["a", "b"]}
WRITTEN = {
    "spaced": '{"name": "Zoë", "age": 7, "tags": ["a", "b"]}',
    "compact": '{"name":"Zoë","age":7,"tags":["a","b"]}',
    "pretty": json.dumps(VALUE, ensure_ascii=False, indent=2),
}


def takes(library: str, constraint: JsonSchema, text: str) -> bool:
    """Whether this text, and the end after it, may be written."""
    matcher = backend("bytes", library).compile(constraint).matcher()
    return all(map(matcher.accept, text.encode())) and matcher.accept(256)


@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize(
    ("library", "style"),
    [
        ("llguidance", "spaced"),
        ("llguidance", "compact"),
        ("llguidance", "pretty"),
        ("xgrammar", "spaced"),
        ("xgrammar", "compact"),
        ("xgrammar", "pretty"),
    ],
)
def test_a_style_writes_its_own_white_space_and_no_other(library, style, written):
    constraint = JsonSchema(PERSON, style=style)
    assert takes(library, constraint, WRITTEN[written]) == (written == style)


@LIBRARIES
def test_pretty_empty_containers_are_written_as_json_dumps_does(library):
    constraint = JsonSchema(PERSON, style="pretty")
    assert takes(
        library, constraint, json.dumps({**VALUE, "tags": []}, ensure_ascii=False, indent=2)
    )


@LIBRARIES
@pytest.mark.parametrize(("num_blanks", "is_taken"), [(0, True), (1, True), (8, True), (9, False)])
def test_flexible_white_space_ends_at_8_blanks(library, num_blanks, is_taken):
    constraint = JsonSchema({"type": "array", "items": {"type": "null"}}, style="flexible")
    assert takes(library, constraint, f"[null,{' ' * num_blanks}null]") == is_taken


@LIBRARIES
def test_closed_objects_have_declared_keys_only_unless_the_schema_says_otherwise(library):
    text = '{"a": 1, "b": 2}'
    silent = {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert not takes(library, JsonSchema(silent), text)
    assert takes(library, JsonSchema(silent, closed=False), text)
    assert takes(library, JsonSchema(silent | {"additionalProperties": True}), text)


@LIBRARIES
def test_an_object_without_properties_stays_a_map(library):
    assert takes(library, JsonSchema({"type": "object"}), '{"any": [1, {"key": null}]}')


def test_an_object_described_in_two_places_is_closed_over_the_keys_of_both():
    part = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    other = {"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]}
    constraint = JsonSchema({"allOf": [part, other]})
    assert takes("llguidance", constraint, '{"a": 1, "b": 2}')
    assert not takes("llguidance", constraint, '{"a": 1, "b": 2, "c": 3}')
    assert any("closed" in c for c in backend("bytes", "llguidance").report(constraint).changes)


def test_an_escaped_key_does_not_lead_round_the_schema_of_a_declared_one():
    schema = {
        "type": "object",
        "properties": {"abc": {"type": "integer"}},
        "additionalProperties": {"type": "string"},
    }
    assert takes("llguidance", JsonSchema(schema), '{"xyz": "s"}')
    assert not takes("llguidance", JsonSchema(schema), r'{"\u0061bc": "s"}')


def test_options_inside_a_schema_do_not_change_the_style():
    schema = {"x-guidance": {"whitespace_flexible": True, "lenient": True}, **PERSON}
    assert not takes("llguidance", JsonSchema(schema), WRITTEN["compact"])
    assert takes("llguidance", JsonSchema(schema), WRITTEN["spaced"])


@pytest.mark.parametrize(
    ("schema", "pointer", "words"),
    [
        ({"properties": {"a": {"$ref": "#/$defs/x"}}}, "#/properties/a/$ref", "'#/$defs/x'"),
        ({"properties": {"a": {"$ref": "#name"}}}, "#/properties/a/$ref", "anchor"),
        ({"items": {"$ref": "https://a.b/c.json"}}, "#/items/$ref", "not fetched"),
        ({"$ref": "#"}, "#/$ref", "itself"),
        ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "#/$defs/", "itself"),
        ({"properties": {"a/b": {"type": "objekt"}}}, "#/properties/a~1b/type", "objekt"),
        ({"required": "name"}, "#/required", "array"),
        ({"properties": {"a": {"minLength": -1}}}, "#/properties/a/minLength", "minimum"),
        ({"properties": {"a": {"pattern": "(b"}}}, "#/properties/a/pattern", "not closed"),
        (False, "#", "false"),
        ({"type": "object", "required": ["n"], "properties": {"n": {"$ref": "#"}}}, "#", "itself"),
        (
            {
                "type": "object",
                "required": ["n"],
                "properties": {"n": {"type": "integer", "minimum": 5, "maximum": 4}},
            },
            "#/properties/n",
            "minimum",
        ),
        ("[1]", "#", "object, true or false"),
        ({"properties": {"a": {"const": "\ud800"}}}, "#/properties/a/const", "surrogate"),
        ({"properties": {"\ud800": {}}}, "#/properties", "surrogate"),
        ({"enum": [1, 10**400]}, "#/enum/1", "beyond"),
        ('{"items": {"minimum": -1e400}}', "#/items/minimum", "beyond"),
    ],
    ids=lambda value: json.dumps(value)[:40] if not isinstance(value, str) else None,
)
@LIBRARIES
def test_a_wrong_schema_is_refused_with_its_place(library, schema, pointer, words):
    with pytest.raises(GrammarError) as caught:
        backend("bytes", library).compile(JsonSchema(schema))
    if library == "llguidance" or not isinstance(caught.value, UnsupportedConstraint):
        assert (caught.value.pointer or "").startswith(pointer)
        assert words in str(caught.value)


@LIBRARIES
@pytest.mark.parametrize(
    "setting", [{"style": "loose"}, {"property_order": "random"}, {"closed": "yes"}], ids=str
)
def test_an_unknown_setting_is_refused_by_name(library, setting):
    with pytest.raises(GrammarError, match=f"{next(iter(setting))} must be one of"):
        backend("bytes", library).compile(JsonSchema(True, **setting))


def test_schema_text_that_is_not_json_is_refused_with_line_and_column():
    with pytest.raises(GrammarError) as caught:
        backend("bytes", "llguidance").compile(JsonSchema('{"type":\n "string",}'))
    assert caught.value.line == 2


@pytest.mark.parametrize(
    ("text", "key", "pointer"),
    [
        ('{"type": "object", "type": "string"}', "type", "#"),
        ('{"properties": {"a/b": [{"x": 1, "x": 1}]}}', "x", "#/properties/a~1b/0"),
        ('{"properties": {"a": {}, "b": {"c": {}}, "a": {}}}', "a", "#/properties"),
        ('{"a": {"b": 1, "b": 2}, "a": 3}', "a", "#"),
    ],
)
@pytest.mark.parametrize(
    "read",
    [resolve_schema, lambda text: backend("bytes", "llguidance").compile(JsonSchema(text))],
    ids=["to validate", "to write"],
)
def test_a_key_that_comes_twice_in_a_schema_is_named_with_its_place(read, text, key, pointer):
    with pytest.raises(GrammarError, match=f"the key '{key}' comes twice") as caught:
        read(text)
    assert caught.value.pointer == pointer


@pytest.mark.parametrize(
    "schema",
    [
        {"$defs": {"a": {"type": "integer"}}, "$ref": "#/$defs/a"},
        {"$defs": {"a": {"$anchor": "here", "type": "integer"}}, "$ref": "#here"},
        {"$id": "https://a.b/c", "$defs": {"a": {"$id": "d", "type": "integer"}}, "$ref": "d"},
        {"x": {"y/z": [{"type": "integer"}]}, "$ref": "#/x/y~1z/0"},
        {
            "$schema": "http://json-schema.org/draft-04/schema#",
            "definitions": {"a": {"id": "#here", "type": "integer"}},
            "allOf": [{"$ref": "#here"}],
        },
    ],
    ids=["pointer", "anchor", "id", "unknown-keyword", "draft-4"],
)
def test_a_reference_inside_the_schema_is_followed(schema):
    assert takes("llguidance", JsonSchema(schema), "12")
    assert not takes("llguidance", JsonSchema(schema), '"12"')


@pytest.mark.parametrize(
    ("schema", "keyword", "valid", "invalid"),
    [
        ({"not": {"type": "string"}}, "not", "3", '"a"'),
        ({"type": "string", "pattern": "[a-z]+", "minLength": 3}, "pattern", '"1b2"', '"1b"'),
        ({"oneOf": [{"type": "integer"}, {"minimum": 3}]}, "oneOf", "2", "3"),
        ({"if": {"type": "string"}, "then": {"minLength": 2}}, "if", '"ab"', '"a"'),
        (
            {"patternProperties": {"^a": {"type": "null"}, "b$": {"type": "null"}}},
            "patternProperties",
            '{"axb": null, "c": 1}',
            '{"xb": 1}',
        ),
        ({"properties": {"a": {}, "b": {}}, "minProperties": 1}, "minProperties", '{"b": 1}', "{}"),
        (
            {"type": "array", "items": {"enum": ["x", "y"]}, "uniqueItems": True},
            "uniqueItems",
            '["y", "x"]',
            '["y", "y"]',
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isalpha() else "",
)
def test_our_grammar_holds_what_xgrammar_refuses(schema, keyword, valid, invalid):
    constraint = JsonSchema(schema, closed=False)
    report = backend("bytes", "llguidance").report(constraint)
    assert keyword in {finding.keyword for finding in report.enforced}
    assert report.exact
    assert takes("llguidance", constraint, valid)
    assert not takes("llguidance", constraint, invalid)
    other = backend("bytes", "xgrammar").report(constraint)
    assert keyword not in {finding.keyword for finding in other.enforced}
    assert not other.exact


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, "uniqueItems"),
        ({"type": "string", "format": "regex"}, "format"),
        ({"type": "string", "pattern": "^(a|b)\\1$"}, "pattern"),
        ({"type": "object", "propertyNames": {"maxLength": 3}}, "propertyNames"),
        ({"not": {"additionalProperties": {"type": "null"}}}, "additionalProperties"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_the_mask_cannot_hold_is_approximated_and_said_to_be(schema, keyword):
    report = backend("bytes", "llguidance").report(JsonSchema(schema, closed=False))
    assert keyword in {finding.keyword for finding in report.approximated}
    assert keyword not in {finding.keyword for finding in report.enforced}
    assert not report.exact


@pytest.mark.parametrize(
    ("library", "pattern", "valid", "invalid"),
    [
        ("llguidance", "^(?!admin)[a-z]+$", '"adm"', '"administrator"'),
        ("llguidance", "^(?=.*[0-9])[a-z0-9]{4}$", '"ab1c"', '"abcd"'),
        ("xgrammar", "^(?!a)[a-z]$", '"b"', '"a"'),
    ],
)
def test_lookahead_in_a_pattern_is_held(library, pattern, valid, invalid):
    constraint = JsonSchema({"type": "string", "pattern": pattern})
    assert backend("bytes", library).report(constraint).exact
    assert takes(library, constraint, valid)
    assert not takes(library, constraint, invalid)


def test_annotations_are_no_findings():
    schema = {"type": "null", "title": "t", "description": "d", "default": 1, "examples": [2]}
    report = backend("bytes", "llguidance").report(JsonSchema(schema))
    assert [finding.keyword for finding in report.enforced] == ["type"]
    assert report.exact


def test_a_thousand_optional_properties_can_be_written():
    schema = {"type": "object", "properties": {f"p{i}": {"type": "integer"} for i in range(1000)}}
    grammar = backend("bytes", "llguidance").compile(JsonSchema(schema))
    assert accepts(grammar, {"p3": 1, "p999": 2})
    assert not accepts(grammar, {"p999": 2, "p3": 1})


def test_branches_that_one_value_may_meet_exclude_each_other():
    branches = [
        {"type": "object", "required": ["a", "b"], "properties": {"a": {"type": "string"}}},
        {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}},
    ]
    constraint = JsonSchema({"oneOf": branches}, closed=False)
    assert backend("bytes", "llguidance").report(constraint).exact
    assert takes("llguidance", constraint, '{"a": "x"}')
    assert not takes("llguidance", constraint, '{"a": "x", "b": 1}')  # meets both
    assert not takes("llguidance", constraint, '{"b": 1}')


def test_branches_told_apart_by_a_constant_are_exact():
    branches = [
        {
            "type": "object",
            "properties": {"kind": {"const": kind}, "value": {"type": type_name}},
            "required": ["kind", "value"],
        }
        for kind, type_name in (("text", "string"), ("count", "integer"))
    ]
    constraint = JsonSchema({"oneOf": branches})
    assert backend("bytes", "llguidance").report(constraint).exact
    assert takes("llguidance", constraint, '{"kind": "count", "value": 3}')
    assert not takes("llguidance", constraint, '{"kind": "text", "value": 3}')


@pytest.mark.parametrize(
    "schema", [{"type": "array", "minItems": 1}, {"type": "object", "required": ["a"]}]
)
def test_parts_that_are_demanded_but_not_described_may_be_anything(schema):
    text = '[{"x": 1}]' if schema["type"] == "array" else '{"a": [1]}'
    assert takes("llguidance", JsonSchema(schema), text)


def test_a_recursive_union_keeps_what_stands_beside_it():
    union = {"minProperties": 1, "anyOf": [{"type": "string"}, {"$ref": "#/$defs/tree"}]}
    tree = {"type": "object", "additionalProperties": union}
    constraint = JsonSchema({"$defs": {"tree": tree}, "$ref": "#/$defs/tree"})
    assert backend("bytes", "llguidance").report(constraint).exact
    assert takes("llguidance", constraint, '{"a": {"b": "c"}}')
    assert not takes("llguidance", constraint, '{"a": {}}')


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        (False, "#"),
        ({"not": {}}, "#"),
        ({"not": True}, "#"),
        ({"type": "object", "properties": {"a": {"not": {}}}, "required": ["a"]}, "#/properties/a"),
        ({"anyOf": [False, {"not": {}}]}, "#/anyOf"),
    ],
)
def test_a_schema_that_nothing_satisfies_is_refused_rather_than_loosened(schema, pointer):
    for library in ("llguidance", "xgrammar"):
        with pytest.raises(GrammarError) as caught:
            backend("bytes", library).compile(JsonSchema(schema))
        assert (caught.value.pointer or "").startswith(pointer)


@pytest.mark.parametrize("num_keys", [64, 400, 401, 511, 512, 700])
@pytest.mark.parametrize("closed", [True, False])
def test_objects_of_many_keys_are_written_in_order_with_any_left_out(num_keys, closed):
    required = {3, num_keys // 2}
    schema = {
        "type": "object",
        "properties": {f"p{i}": {"type": "integer"} for i in range(num_keys)},
        "required": [f"p{i}" for i in sorted(required)],
    }
    grammar = backend("bytes", "llguidance").compile(JsonSchema(schema, closed=closed))
    for step in (1, 2, 7, 50):
        keys = sorted(required | set(range(0, num_keys, step)))
        value = {f"p{i}": i for i in keys}
        assert accepts(grammar, value)
        assert not accepts(grammar, {key: value[key] for key in reversed(value)})
        assert not accepts(grammar, {key: i for key, i in value.items() if key != "p3"})
        assert accepts(grammar, {**value, "other": 1}) != closed


def test_more_items_by_place_than_the_library_has_stack_for_are_refused():
    schema = {"type": "array", "prefixItems": [{"type": "integer"}] * 3000}
    with pytest.raises(UnsupportedConstraint, match="up to 500 items"):
        backend("bytes", "llguidance").compile(JsonSchema(schema))
