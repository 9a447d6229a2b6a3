"""JSON schemas without the keywords that only describe them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ANNOTATIONS: Mapping[str, type] = {
    "title": str,
    "description": str,
    "$comment": str,
    "examples": list,
}
_DATA = ("const", "enum", "default")  # what stands here is no schema
# maps from names that the user chose, which may well be "title", to schemas
_NAMES = (
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
    "dependencies",
)


def without_annotations(schema: Any, names: Mapping[str, type] = ANNOTATIONS) -> Any:
    """A copy without the keywords of these names, where their values are of the given types."""
    if isinstance(schema, list):
        return [without_annotations(item, names) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        keyword: _value(keyword, value, names)
        for keyword, value in schema.items()
        if not isinstance(value, names.get(keyword, ()))
    }


def _value(keyword: str, value: Any, names: Mapping[str, type]) -> Any:
    if keyword in _DATA:
        return value
    if keyword in _NAMES and isinstance(value, Mapping):
        return {name: without_annotations(part, names) for name, part in value.items()}
    return without_annotations(value, names)
