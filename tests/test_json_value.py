"""Checking a parsed value: ECMAScript's patterns, each draft by its own rules, no network."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from structspec.json_value import compile_validator


def label(value: Any) -> str:
    return str(value)[:40]


PATTERNS = [
    (r"^\p{L}+$", "é", True),
    (r"^\p{L}+$", "1", False),
    (r"^\d$", "\u0663", False),  # a digit in Arabic, and so for Python, but not in ECMA-262
    (r"^\cA$", "\x01", True),
    (r"^.$", "😀", True),
    (r"^a$", "a\n", False),
    (r"b", "abc", True),
    (r"^(?!.*\.\.)[a.]+$", "a.a", True),
    (r"^(?!.*\.\.)[a.]+$", "a..a", False),
    (r"^(a|b)\1$", "bb", True),  # no automaton holds a back reference: Python searches it
    (r"^(a|b)\1$", "ab", False),
    ("^(a+)+$", "a" * 60 + "b", False),  # back-tracking would not come to an end
]


@pytest.mark.parametrize(("pattern", "text", "is_found"), PATTERNS, ids=label)
@pytest.mark.parametrize("place", ["string", "key", "rest", "unevaluated"])
def test_patterns_are_ecmascripts_wherever_they_stand(
    pattern: str, text: str, is_found: bool, place: str
) -> None:
    maps = {"patternProperties": {pattern: {"const": 1}}}
    schema, value, is_valid = {
        "string": ({"pattern": pattern}, text, is_found),
        "key": (maps, {text: 2}, not is_found),
        "rest": ({**maps, "additionalProperties": False}, {text: 1}, is_found),
        "unevaluated": ({"allOf": [maps], "unevaluatedProperties": False}, {text: 1}, is_found),
    }[place]
    errors = compile_validator(schema)(value)
    assert (errors == ()) == is_valid


DRAFT = "http://json-schema.org/draft-0{}/schema#"
NEWER = "https://json-schema.org/draft/{}/schema"
TREE = {"properties": {"below": {"$ref": "#"}, "p": {"pattern": r"^\p{L}$"}}}
DRAFTS: list[tuple[dict[str, Any], Any, bool]] = [
    ({"minimum": 1, "exclusiveMinimum": True}, 1, False),  # draft 4, unnamed
    ({"$schema": DRAFT.format(4), "minimum": 1, "exclusiveMinimum": True}, 2, True),
    ({"items": [{"type": "null"}]}, [1], False),  # draft 7 and before, unnamed
    ({"dependencies": {"a": ["b"]}}, {"a": 1}, False),  # likewise
    ({"$schema": DRAFT.format(7), "$ref": "#/x", "maximum": 1, "x": {}}, 2, True),
    ({"$schema": NEWER.format("2020-12"), "$ref": "#/$defs/x", "maximum": 1, "$defs": {"x": {}}},
     2, False),
    ({"$schema": NEWER.format("2019-09"), "$recursiveAnchor": True,
      "properties": {"a": {"$recursiveRef": "#"}}, "unevaluatedProperties": False},
     {"a": {"b": 1}}, False),
    ({"$schema": NEWER.format("2020-12"), **TREE}, {"below": {"p": "1"}}, False),
    ({"$schema": NEWER.format("2020-12"), **TREE}, {"below": {"p": "é"}}, True),
    ({"$defs": {"t": {"$schema": NEWER.format("2020-12"), "$id": "urn:t", **TREE}},
      "$ref": "urn:t"}, {"below": {"p": "1"}}, False),
    ({"$defs": {"a": {"$anchor": "here", "type": "null"}}, "$ref": "#here"}, 1, False),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value", "is_valid"), DRAFTS, ids=label)
def test_each_draft_is_checked_by_its_own_rules(
    schema: dict[str, Any], value: Any, is_valid: bool
) -> None:
    before = json.dumps(schema)
    errors = compile_validator(schema)(value)
    assert (errors == ()) == is_valid
    assert json.dumps(schema) == before


UNEVALUATED: list[tuple[dict[str, Any], Any, bool]] = [
    ({"anyOf": [{"required": ["a"], "properties": {"a": {}}}, {"properties": {"b": {}}}]},
     {"b": 1}, True),
    ({"anyOf": [{"required": ["a"], "properties": {"a": {}, "b": {}}}]}, {"b": 1}, False),
    ({"if": {"required": ["a"]}, "then": {"properties": {"a": {}}}}, {"a": 1}, True),
    ({"if": {"required": ["a"]}, "else": {"properties": {"b": {}}}}, {"b": 1}, True),
    ({"if": {"required": ["a"]}, "else": {"properties": {"b": {}}}}, {"a": 1}, False),
    ({"dependentSchemas": {"a": {"properties": {"a": {}, "b": {}}}}}, {"a": 1, "b": 1}, True),
    ({"dependentSchemas": {"a": {"properties": {"a": {}, "b": {}}}}}, {"b": 1}, False),
    ({"$ref": "#/$defs/r", "$defs": {"r": {"properties": {"a": {}}}}}, {"a": 1}, True),
    ({"allOf": [{"additionalProperties": {"type": "integer"}}]}, {"a": 1}, True),
    ({"not": {"properties": {"a": {"type": "null"}}}}, {"a": 1}, False),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value", "is_valid"), UNEVALUATED, ids=label)
def test_properties_count_as_evaluated_where_a_part_that_holds_names_them(
    schema: dict[str, Any], value: Any, is_valid: bool
) -> None:
    closed = {**schema, "unevaluatedProperties": False}
    assert (compile_validator(closed)(value) == ()) == is_valid
    stock = jsonschema.Draft202012Validator(closed)
    assert stock.is_valid(value) == is_valid


CIRCLES: list[tuple[dict[str, Any], list[Any], list[Any]]] = [
    ({"anyOf": [{"$ref": "#"}, {"type": "null"}]}, [None], [1, "a"]),
    ({"allOf": [{"$ref": "#"}, {"type": "null"}]}, [], [None, 1]),
    ({"if": {"$ref": "#"}, "then": False, "else": {"type": "null"}}, [], [1]),
    ({"anyOf": [{"type": "null"}, {"items": {"$ref": "#"}, "type": "array"}]},
     [None, [None, [None]]], [1, [[1]]]),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "valid", "invalid"), CIRCLES, ids=label)
def test_a_reference_back_to_itself_on_one_value_helps_nothing_and_ends(
    schema: dict[str, Any], valid: list[Any], invalid: list[Any]
) -> None:
    violations = compile_validator(schema)
    assert all(violations(value) == () for value in valid)
    assert all(violations(value) != () for value in invalid)


def test_a_value_too_deep_for_the_stack_is_a_violation_wherever_the_stack_ends() -> None:
    value: Any = 1
    for _ in range(900):
        value = [value]
    (violation,) = compile_validator({"items": {"$ref": "#"}})(value)
    assert "too deeply" in violation


@pytest.mark.parametrize(
    ("step", "valid", "invalid"),
    [
        (0.1, [0.6, 0.3, 7, 1e20, -0.7], [0.65, 1e-7]),
        (0.01, [19.99, 4.35, 1.1], [0.001]),
        (3, [9, 9.0, 3e20, -6], [3.5, 1]),
    ],
)
def test_multiples_are_those_of_the_numbers_as_written(
    step: float, valid: list[float], invalid: list[float]
) -> None:
    violations = compile_validator({"multipleOf": step})
    assert all(violations(value) == () for value in valid)
    assert all(violations(value) != () for value in invalid)
