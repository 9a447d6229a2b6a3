"""Random values near a schema: of its constants, about its limits, with its keys; then mutated."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.fuzz.schemas import KEYS, SCALARS, TEXTS, VALUES, Draw, Schema

_IN_PLACE = ("allOf", "anyOf", "oneOf")
_NUMBER_LIMITS = (
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
)
_EXAMPLES = {
    "date": "2024-02-29",
    "time": "12:30:00Z",
    "ipv4": "1.2.3.4",
    "uuid": "01234567-89ab-cdef-0123-456789abcdef",
    "email": "a@b.de",
    "json-pointer": "/a",
}


@st.composite
def instances(draw: Draw, schema: Schema) -> Any:
    """A value that has a fair chance to conform, and one to just not conform."""
    value = _Near(draw, schema).value(schema, 4)
    return _mutated(draw, value) if draw(st.integers(0, 3)) == 0 else value


class _Near:
    def __init__(self, draw: Draw, root: Schema) -> None:
        self._draw = draw
        self._root = root

    def _pick(self, number: int) -> int:
        return int(self._draw(st.integers(0, number - 1)))

    def _one(self, choices: Any) -> Any:
        return self._draw(st.sampled_from(choices))

    def value(self, schema: Schema, depth: int) -> Any:
        """A value near one subschema."""
        parts = list(self._applied(schema, 6))
        if depth == 0 or not parts or self._pick(16) == 0:
            return self._draw(VALUES)
        fixed = [v for part in parts for v in (*part.get("enum", ()), *_const(part))]
        if fixed and self._pick(8):
            return self._one(fixed)
        match self._type(parts):
            case "null":
                return None
            case "boolean":
                return bool(self._pick(2))
            case "integer" | "number":
                return self._number(parts)
            case "string":
                return self._string(parts)
            case "array":
                return self._array(parts, depth - 1)
            case _:
                return self._object(parts, depth - 1)

    def _applied(self, schema: Schema, fuel: int) -> list[dict[str, Any]]:
        """The schema and some of what it applies to the value itself."""
        if isinstance(schema, bool) or fuel == 0:
            return []
        found = [schema]
        for keyword in _IN_PLACE:
            branches = schema.get(keyword, [])
            if keyword != "allOf" and branches:
                branches = [self._one(branches)]
            for branch in branches:
                found += self._applied(branch, fuel - 1)
        if "$ref" in schema:
            found += self._applied(self._target(schema["$ref"]), fuel - 1)
        if "if" in schema:
            keywords = ("if", "then") if self._pick(2) else ("else",)
            for keyword in keywords:
                found += self._applied(schema.get(keyword, True), fuel - 1)
        for keyword in ("dependentSchemas", "dependencies"):
            for part in schema.get(keyword, {}).values():
                if isinstance(part, dict) and self._pick(2):
                    found += self._applied(part, fuel - 1)
        if "not" in schema and self._pick(3) == 0:  # just what it must not be
            found += self._applied(schema["not"], fuel - 1)
        return found

    def _target(self, reference: str) -> Schema:
        found: Any = self._root
        for part in reference.removeprefix("#").split("/")[1:]:
            found = found[part]
        return found  # type: ignore[no-any-return]

    def _type(self, parts: list[dict[str, Any]]) -> str:
        named = [part["type"] for part in parts if "type" in part]
        listed = [t for types in named for t in ([types] if isinstance(types, str) else types)]
        if listed and self._pick(8):
            return str(self._one(listed))
        guesses = [t for part in parts for keyword in part for t in _types_of(keyword)]
        return str(self._one(guesses or ["null", "number", "string", "array", "object"]))

    def _number(self, parts: list[dict[str, Any]]) -> int | float:
        limits = [
            part[k]
            for part in parts
            for k in _NUMBER_LIMITS
            if k in part and not isinstance(part[k], bool)
        ]
        base = self._one(limits or [0, 1, 2])
        value = base + self._one((0, 0, 0, 1, -1, 0.5, -0.5)) if abs(base) < 1e9 else base
        steps = [part["multipleOf"] for part in parts if "multipleOf" in part]
        if steps and self._pick(2):
            value = self._one(steps) * self._one((0, 1, 2, 3, -1, 6))
        whole = value == int(value) and abs(value) < 1e9 and self._pick(3)
        return int(value) if whole else value

    def _string(self, parts: list[dict[str, Any]]) -> str:
        formats = [part["format"] for part in parts if "format" in part]
        if formats and self._pick(3):
            return _EXAMPLES.get(self._one(formats), "a")
        if self._pick(2):
            return str(self._one(TEXTS))
        return str(self._draw(st.text("ab1é", max_size=4)))

    def _array(self, parts: list[dict[str, Any]], depth: int) -> list[Any]:
        counts = [part[k] for part in parts for k in ("minItems", "maxItems") if k in part]
        length = self._one(counts) if counts and self._pick(3) else self._pick(4)
        return [self.value(self._item(parts, index), depth) for index in range(length)]

    def _item(self, parts: list[dict[str, Any]], index: int) -> Schema:
        choices: list[Schema] = []
        for part in parts:
            for keyword in ("prefixItems", "items", "additionalItems", "unevaluatedItems"):
                found = part.get(keyword)
                if isinstance(found, list):
                    choices += found[index : index + 1] * 3
                elif found is not None:
                    choices.append(found)
            choices += [part["contains"]] if "contains" in part else []
        return self._one(choices) if choices else True

    def _object(self, parts: list[dict[str, Any]], depth: int) -> dict[str, Any]:
        names: dict[str, list[Schema]] = {}
        for part in parts:
            for name, member in part.get("properties", {}).items():
                if name in part.get("required", ()) or self._pick(3):
                    names.setdefault(name, []).append(member)
            for name in part.get("required", ()):
                if self._pick(8):
                    names.setdefault(name, [])
            for keyword in ("dependentRequired", "dependencies"):
                for name, others in part.get(keyword, {}).items():
                    for other in (name, *(others if isinstance(others, list) else ())):
                        if self._pick(2):
                            names.setdefault(other, [])
        for _ in range(self._pick(3)):
            names.setdefault(self._one((*KEYS, "x", "y", "ax")), [])
        others = [
            schema
            for part in parts
            for schema in (
                *part.get("patternProperties", {}).values(),
                *(part[k] for k in ("additionalProperties", "unevaluatedProperties") if k in part),
            )
        ]
        return {
            name: self.value(self._one(known or others or [True]), depth)
            for name, known in names.items()
        }


def _const(schema: dict[str, Any]) -> list[Any]:
    return [schema["const"]] if "const" in schema else []


def _types_of(keyword: str) -> tuple[str, ...]:
    if keyword in _NUMBER_LIMITS:
        return ("number",)
    if keyword in ("minLength", "maxLength", "pattern", "format"):
        return ("string",)
    if "tems" in keyword or "ontains" in keyword:
        return ("array",)
    return ("object",) if "ropert" in keyword or "epend" in keyword or keyword == "required" else ()


def _mutated(draw: Draw, value: Any) -> Any:
    """The value with one small change somewhere."""
    if isinstance(value, list) and value:
        index = draw(st.integers(0, len(value) - 1))
        kind = draw(st.integers(0, 3))
        if kind == 0:
            return [*value, draw(st.sampled_from(value))]
        if kind == 1:
            return value[:index] + value[index + 1 :]
        return [*value[:index], _mutated(draw, value[index]), *value[index + 1 :]]
    if isinstance(value, dict) and value:
        name = draw(st.sampled_from(sorted(value)))
        kind = draw(st.integers(0, 3))
        if kind == 0:
            return {k: v for k, v in value.items() if k != name}
        if kind == 1:
            return {**value, draw(st.sampled_from((*KEYS, "z"))): draw(st.sampled_from(SCALARS))}
        return {**value, name: _mutated(draw, value[name])}
    return draw(VALUES)
