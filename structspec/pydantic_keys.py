"""Keys of JSON objects for dicts whose keys are more than text: `dict[int, T]`, `dict[date, T]`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from structspec.pydantic_checks import with_note

_INTEGER = "^(0|-?[1-9][0-9]{0,17})$"
_NUMBER = r"^-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?([eE][+-]?[0-9]{1,3})?$"
_BOUNDS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
_ANNOTATIONS = ("title", "description")

JsonSchema = dict[str, Any]


def key_schema(
    written: JsonSchema, resolve: Callable[[JsonSchema], JsonSchema]
) -> JsonSchema | None:
    """The schema of a property's name that may spell a value of the schema `written`.

    {} is any name, None no name at all. Whether pydantic reads what is listed is to be tried.
    """
    schema = resolve(written)
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return _union([key_schema(part, resolve) for part in schema[union]])
    if "const" in schema or "enum" in schema:
        return _listed(written, schema.get("enum", [schema.get("const")]))
    match schema.get("type"):
        case None:
            return {}
        case "string":
            rest = {name: part for name, part in written.items() if name not in _ANNOTATIONS}
            return {} if rest == {"type": "string"} else rest
        case "integer":
            return _bounded(_INTEGER, schema)
        case "number":
            return _bounded(_NUMBER, schema)
        case "boolean":
            return {"enum": ["true", "false"]}
    return None


def _listed(written: JsonSchema, values: list[Any]) -> JsonSchema | None:
    if all(isinstance(value, str) for value in values):
        return written
    spelled = (value if isinstance(value, str) else json.dumps(value) for value in values)
    return {"enum": list(dict.fromkeys(spelled))}


def _bounded(pattern: str, schema: JsonSchema) -> JsonSchema:
    """Numbers as keys; of bounds only zero can be seen in the spelling."""
    bounds = {name: schema[name] for name in _BOUNDS & schema.keys()}
    if bounds == {"minimum": 0}:
        return {"type": "string", "pattern": pattern.replace("-?", "", 1)}
    if bounds == {"exclusiveMinimum": 0} and pattern == _INTEGER:
        return {"type": "string", "pattern": "^[1-9][0-9]{0,17}$"}
    keys = {"type": "string", "pattern": pattern}
    return with_note(keys, "keys", "no mask compares keys as numbers") if bounds else keys


def _union(parts: list[JsonSchema | None]) -> JsonSchema | None:
    possible = [part for part in parts if part is not None]
    if not possible:
        return None
    if {} in possible:
        return {}
    return possible[0] if len(possible) == 1 else {"anyOf": possible}
