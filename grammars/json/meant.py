"""The types that keywords are meant for where no `type` is stated.

To the letter `{"minLength": 3}` admits every number; closed, it is taken for what its author means.
Whether a type is stated shows only when all that describes a value is merged, so every shape
carries what its parts have said so far:

    None            somebody states the type: `type`, `enum`, `const`, or the way a part is broken
    {"string"}      nobody does, and there are keywords of strings
    {}              nobody does, and no keyword tells
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from structspec.grammars.formats import format_regex
from structspec.grammars.json.own import (
    ARRAY_KEYWORDS,
    NUMBER_KEYWORDS,
    OBJECT_KEYWORDS,
    STRING_KEYWORDS,
)
from structspec.grammars.json.shapes import UNTOLD, Shape
from structspec.grammars.schema_nodes import Node

_STATING = ("type", "enum", "const")
_TYPES = {
    **dict.fromkeys(STRING_KEYWORDS, "string"),
    **dict.fromkeys(NUMBER_KEYWORDS, "number"),
    **dict.fromkeys((*ARRAY_KEYWORDS, "unevaluatedItems"), "array"),
    **dict.fromkeys((*OBJECT_KEYWORDS, "unevaluatedProperties"), "object"),
    **dict.fromkeys(("dependentRequired", "dependentSchemas", "dependencies"), "object"),
}


def marked(node: Node, shapes: tuple[Shape, ...]) -> tuple[Shape, ...]:
    """The shapes of a subschema with what its own keywords tell of their type."""
    schema = node.keywords()
    if any(keyword in schema for keyword in _STATING):
        return stated(shapes)
    told = frozenset(
        _TYPES[keyword]
        for keyword, value in schema.items()
        if keyword in _TYPES and _tells(keyword, value)
    )
    if not told:
        return shapes
    return tuple(
        shape if shape.meant is None else replace(shape, meant=shape.meant | told)
        for shape in shapes
    )


def _tells(keyword: str, value: Any) -> bool:
    """Whether a keyword binds anything: what infers schemas writes `properties: {}` of any value.

    Nor can anybody tell of a format that is not known: OpenAPI has some of numbers.
    """
    if keyword == "format":
        return format_regex(value) is not None
    return value not in ({}, []) and value is not (keyword != "uniqueItems")


def stated(shapes: Iterable[Shape]) -> tuple[Shape, ...]:
    """The same shapes, each of a type that somebody states."""
    return tuple(s if s.meant is None else replace(s, meant=None) for s in shapes)


def untold(shapes: Iterable[Shape]) -> tuple[Shape, ...]:
    """The same shapes without a word on types nobody states: of a condition, of what is broken."""
    return tuple(replace(s, meant=UNTOLD) if s.meant else s for s in shapes)


def is_meant(shape: Shape) -> bool:
    """Whether a shape is of a type that its description is for."""
    return not shape.meant or type(shape).__name__.lower() in shape.meant


def types_meant(shapes: Iterable[Shape]) -> str:
    """The types that these shapes ought to have, in words."""
    names = frozenset[str]().union(*(shape.meant or () for shape in shapes))
    return " or ".join(sorted(names))
