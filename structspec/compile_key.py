"""Telling constraints apart: equal digests compile to the same grammar."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from typing import Any

from structspec.constraint import Constraint, JsonSchema

_ANNOTATIONS: dict[str, type] = {
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
_MAX_STRIPPED = 65_536  # longer schemas are told apart by their descriptions too: it is quicker


def constraint_digest(constraint: Constraint) -> str:
    """A hash of what the constraint means: what only describes a schema is left out.

    Raises TypeError where the constraint is not made of text.
    """
    parts = constraint.key
    # a reference may lead to an example, and make a schema of it
    is_plain = isinstance(constraint, JsonSchema) and "/examples" not in parts[1]
    if is_plain and len(parts[1]) <= _MAX_STRIPPED:
        with suppress(RecursionError):  # too deep to compile, too
            parts = (parts[0], json.dumps(_strip(json.loads(parts[1]))), *parts[2:])
    return digest_of(parts)


def digest_of(parts: tuple[str, ...]) -> str:
    """A hash of these texts and where each one ends."""
    digest = hashlib.sha256()
    for part in parts:
        data = str.encode(part, "utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def _strip(schema: Any) -> Any:
    """A schema without the keywords that only describe it."""
    if isinstance(schema, list):
        return [_strip(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        keyword: _strip_value(keyword, value)
        for keyword, value in schema.items()
        if not isinstance(value, _ANNOTATIONS.get(keyword, ()))
    }


def _strip_value(keyword: str, value: Any) -> Any:
    if keyword in _DATA:
        return value
    if keyword in _NAMES and isinstance(value, dict):
        return {name: _strip(part) for name, part in value.items()}
    return _strip(value)
