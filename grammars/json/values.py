"""Lists of values, as `enum` and `const` give them, as shapes."""

from __future__ import annotations

from typing import Any

from structspec.grammars.json.own import number
from structspec.grammars.json.shapes import Array, Boolean, Null, Number, Object, Shape, String
from structspec.grammars.regexes.syntax import alternatives, complement
from structspec.grammars.regexes.syntax import text as text_regex


def scalar_shapes(values: list[Any]) -> tuple[Shape, ...]:
    """The values that are no arrays and no objects."""
    shapes: list[Shape] = []
    if any(value is None for value in values):
        shapes.append(Null())
    if bools := _bools(values):
        shapes.append(Boolean(bools))
    if numbers := _numbers(values):
        shapes.append(Number(values=tuple(numbers)))
    if texts := dict.fromkeys(value for value in values if isinstance(value, str)):
        shapes.append(String(values=tuple(texts)))
    return tuple(shapes)


def other_shapes(values: list[Any]) -> tuple[Shape, ...]:
    """All that is none of the values, arrays and objects left as they are."""
    bools = frozenset((True, False)) - _bools(values)
    texts = [value for value in values if isinstance(value, str)]
    shapes: list[Shape | None] = [
        None if None in values else Null(),
        Boolean(bools) if bools else None,
        Number(excluded=frozenset(_numbers(values))),
        String(regexes=(complement(alternatives(*map(text_regex, texts))),) if texts else ()),
        Array(),
        Object(),
    ]
    return tuple(shape for shape in shapes if shape is not None)


def schema_of(value: Any) -> dict[str, Any]:
    """A schema that only this array or object meets."""
    if isinstance(value, dict):
        return {
            "type": "object",
            "properties": {key: {"const": item} for key, item in value.items()},
            "required": list(value),
            "additionalProperties": False,
        }
    return {
        "type": "array",
        "prefixItems": [{"const": item} for item in value],
        "items": False,
        "minItems": len(value),
    }


def _bools(values: list[Any]) -> frozenset[bool]:
    return frozenset(value for value in values if isinstance(value, bool))


def _numbers(values: list[Any]) -> dict[Any, None]:
    is_number = [isinstance(v, (int, float)) and not isinstance(v, bool) for v in values]
    return dict.fromkeys(number(v) for v, is_one in zip(values, is_number, strict=True) if is_one)
