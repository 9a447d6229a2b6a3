"""A JSON schema within what OpenAI's strict mode takes.

Objects are closed there and have all their properties, the root is one of them, and many keywords
are not known. What this writes admits no text that the schema's structure forbids; keywords that
had to go are named, and left to whoever validates the finished text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from structspec.constraint import escape

WRAPPED = "value"  # the property that holds what is no object

_AS_THEY_ARE = {
    *("type", "description", "enum", "const", "$ref", "pattern", "multipleOf"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minItems", "maxItems"),
}
_FORMATS = {
    *("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"),
}
_SILENT = {"title", "default", "examples", "$schema", "$comment", "$id", "discriminator"}
_DEFINITIONS = ("$defs", "definitions")
_OBJECT = {"properties", "required", "additionalProperties"}


class NotStrict(Exception):
    """The schema has no form that strict mode takes."""


@dataclass(slots=True)
class StrictSchema:
    """The schema to send; `dropped` are the places of keywords that are not in it."""

    schema: dict[str, Any]
    is_wrapped: bool
    dropped: list[str] = field(default_factory=list)


def to_strict(schema: Mapping[str, Any]) -> StrictSchema:
    """The nearest strict schema; raises NotStrict for maps and what may be anything."""
    dropped: list[str] = []
    definitions = {
        keyword: {
            name: _strict(one, f"#/{keyword}/{escape(name)}", dropped)
            for name, one in schema[keyword].items()
        }
        for keyword in _DEFINITIONS
        if keyword in schema
    }
    root = {key: value for key, value in schema.items() if key not in _DEFINITIONS}
    strict = _strict(root, "#", dropped)
    is_wrapped = strict.get("type") != "object"
    if is_wrapped:
        strict = {
            "type": "object",
            "properties": {WRAPPED: strict},
            "required": [WRAPPED],
            "additionalProperties": False,
        }
    return StrictSchema({**strict, **definitions}, is_wrapped, dropped)


def _strict(schema: Any, place: str, dropped: list[str]) -> dict[str, Any]:
    if not isinstance(schema, Mapping):
        raise NotStrict
    strict: dict[str, Any] = {}
    for keyword, value in schema.items():
        below = f"{place}/{escape(keyword)}"
        if keyword in _AS_THEY_ARE or (keyword == "format" and value in _FORMATS):
            strict[keyword] = value
        elif keyword in ("anyOf", "oneOf"):
            strict["anyOf"] = [
                _strict(one, f"{below}/{index}", dropped) for index, one in enumerate(value)
            ]
            if keyword == "oneOf":
                dropped.append(below)
        elif keyword == "items" and "prefixItems" not in schema:
            strict[keyword] = _strict(value, below, dropped)
        elif keyword not in _SILENT and keyword not in _OBJECT and keyword != "items":
            dropped.append(below)
    if schema.get("type") == "object":
        strict |= _object(schema, place, dropped)
    elif _OBJECT & schema.keys() or schema.get("$ref") == "#":
        raise NotStrict
    if schema.get("type") == "array":
        strict |= _array(schema, place, dropped)
    if not strict.keys() & {"type", "enum", "const", "anyOf", "$ref"}:
        raise NotStrict  # anything at all
    return strict


def _array(schema: Mapping[str, Any], place: str, dropped: list[str]) -> dict[str, Any]:
    """What a tuple becomes: as many items, each of one of its kinds; which one is where is lost."""
    if "prefixItems" not in schema:
        if "items" not in schema:
            raise NotStrict
        return {}
    kinds = schema["prefixItems"]
    if not kinds or schema.get("minItems") != len(kinds) or schema.get("maxItems") != len(kinds):
        raise NotStrict
    below = f"{place}/prefixItems"
    options = [_strict(one, f"{below}/{index}", dropped) for index, one in enumerate(kinds)]
    return {"items": {"anyOf": options}}


def _object(schema: Mapping[str, Any], place: str, dropped: list[str]) -> dict[str, Any]:
    properties = schema.get("properties")
    if not properties or schema.get("additionalProperties", False) not in (False, True):
        raise NotStrict
    return {
        "properties": {
            name: _strict(one, f"{place}/properties/{escape(name)}", dropped)
            for name, one in properties.items()
        },
        "required": list(properties),
        "additionalProperties": False,
    }
