"""Plain subschemas, of one type and no parts: most of any schema, and alike in all of them.

What they come to says nothing of the place where they stand, so it is kept for the next schema.
"""

from __future__ import annotations

from typing import Any

from structspec.grammars.json.own import NUMBER_KEYWORDS
from structspec.grammars.json.shapes import Shape

Key = tuple[tuple[str, type, Any], ...]

_TYPES = frozenset(("string", "integer", "number", "boolean", "null"))
# those of which no finding tells the place
_TELLING = frozenset(("type", "minLength", "maxLength", "enum", *NUMBER_KEYWORDS))
_SILENT = frozenset(("title", "description", "default", "examples", "$comment"))
_MAX_KEPT = 4096

_kept: dict[tuple[Key, bool], tuple[Shape, ...]] = {}  # a step on it is one of the interpreter's


def plain_key(schema: Any) -> Key | None:
    """What a plain subschema says, as values that can be compared; None for any other.

    With types: 1 and true are equal, but not as `exclusiveMinimum`.
    """
    if not isinstance(schema, dict) or not _is_scalar(schema.get("type")):
        return None
    said: list[tuple[str, type, Any]] = []
    for keyword, value in schema.items():
        if keyword in _SILENT:
            continue
        if keyword not in _TELLING:
            return None
        if keyword == "enum":
            if not all(isinstance(text, str) for text in value):
                return None
            value = tuple(value)
        said.append((keyword, type(value), value))
    return tuple(said)


def _is_scalar(name: Any) -> bool:
    return isinstance(name, str) and name in _TYPES


def recall(key: Key, *, closed: bool) -> tuple[Shape, ...] | None:
    """The shapes of a plain subschema that was met before."""
    return _kept.get((key, closed))


def keep(key: Key, shapes: tuple[Shape, ...], *, closed: bool) -> None:
    """Remember them."""
    if len(_kept) >= _MAX_KEPT:
        _kept.clear()
    _kept[key, closed] = shapes
