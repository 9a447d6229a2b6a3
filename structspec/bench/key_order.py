"""Putting the keys of a valid value into the order in which its schema declares them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import unquote

from structspec.bench.cases import Case, Instance

_BRANCHES = ("allOf", "anyOf", "oneOf")
_DEPENDENT_SCHEMAS = ("dependentSchemas", "dependencies")
_DEPENDENT_NAMES = ("dependentRequired", "dependencies")
_ELEMENTS = ("items", "additionalItems", "contains")


def spellings(case: Case, instance: Instance) -> Iterator[str]:
    """The texts to try: as published, then with keys as declared; equal ones once.

    Objects declare keys in several places, and which comes first is the grammar's affair: tried
    are the schema's own properties first, and those of its branches first.
    """
    if instance.is_text:
        yield instance.data
        return
    seen = {json.dumps(instance.data)}
    yield from seen
    if not instance.is_valid:
        return
    for own_first in (True, False):
        text = json.dumps(_Orderer(case.body, own_first).order(instance.data, [case.body]))
        if text not in seen:
            seen.add(text)
            yield text


class _Orderer:
    """Follows a value and the schemas that apply to it side by side."""

    def __init__(self, root: Any, own_first: bool) -> None:
        self._root = root
        self._own_first = own_first

    def order(self, value: Any, schemas: Iterable[Any]) -> Any:
        """The value with its keys, at every level, in the order of the schemas."""
        if not isinstance(value, (dict, list)):
            return value
        seen: set[int] = set()
        applied = [part for schema in schemas for part in self._expand(schema, value, seen)]
        for fixed in (fixed for part in applied for fixed in _fixed(part)):
            if json.dumps(fixed, sort_keys=True) == json.dumps(value, sort_keys=True):
                return fixed
        if isinstance(value, list):
            return [
                self.order(item, self._item_schemas(applied, index))
                for index, item in enumerate(value)
            ]
        declared = [name for part in applied for name in _mapping(part, "properties")]
        declared += [name for part in applied for name in _required(part)]
        names = dict.fromkeys([*(name for name in declared if name in value), *value])
        return {
            name: self.order(value[name], self._member_schemas(applied, name)) for name in names
        }

    def _expand(
        self, schema: Any, value: Any, seen: set[int], *, is_condition: bool = False
    ) -> Iterator[dict[str, Any]]:
        """The schema and those it applies in place, references followed; each once.

        Left out is what shows to be another branch, unless it is a condition: that names its keys
        whether it holds or not.
        """
        if not isinstance(schema, dict) or id(schema) in seen:
            return
        if not is_condition and _excludes(schema, value):
            return
        seen.add(id(schema))
        if self._own_first:
            yield schema
        for part in (*self._target(schema), *_applied(schema)):
            yield from self._expand(part, value, seen)
        if "if" in schema:
            yield from self._expand(schema["if"], value, seen, is_condition=True)
            branch = "else" if _excludes(schema["if"], value) else "then"
            yield from self._expand(schema.get(branch), value, seen)
        if not self._own_first:
            yield schema

    def _target(self, schema: dict[str, Any]) -> Iterator[Any]:
        """What a `$ref` into this document leads to."""
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#"):
            return
        found = self._root
        for raw in unquote(reference[1:]).split("/")[1:]:
            part = raw.replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and part in found:
                found = found[part]
            elif isinstance(found, list) and part.isdecimal() and int(part) < len(found):
                found = found[int(part)]
            else:
                return
        yield found

    def _item_schemas(self, applied: list[dict[str, Any]], index: int) -> Iterator[Any]:
        for part in applied:
            positional = _items(part.get("prefixItems")) or _items(part.get("items"))
            if index < len(positional):
                yield positional[index]
            else:
                yield from (part[keyword] for keyword in _ELEMENTS if keyword in part)

    def _member_schemas(self, applied: list[dict[str, Any]], name: str) -> Iterator[Any]:
        for part in applied:
            properties = _mapping(part, "properties")
            if name in properties:
                yield properties[name]
            else:
                yield from _mapping(part, "patternProperties").values()
                if "additionalProperties" in part:
                    yield part["additionalProperties"]


def _applied(schema: dict[str, Any]) -> Iterator[Any]:
    """The subschemas for the value itself, but for conditionals."""
    for keyword in _BRANCHES:
        yield from _items(schema.get(keyword))
    for keyword in _DEPENDENT_SCHEMAS:
        yield from _mapping(schema, keyword).values()


def _required(schema: dict[str, Any]) -> Iterator[str]:
    """The names that it requires, always or beside another."""
    yield from _names(schema.get("required"))
    for keyword in _DEPENDENT_NAMES:
        for name, others in _mapping(schema, keyword).items():
            yield from (name, *_names(others))


def _fixed(schema: dict[str, Any]) -> list[Any]:
    """The only values it allows, where it lists them."""
    return [schema["const"]] if "const" in schema else _items(schema.get("enum"))


def _excludes(schema: Any, value: Any) -> bool:
    """Whether a required or fixed member shows that the value is not of this branch."""
    if not isinstance(value, dict) or not isinstance(schema, dict):
        return False
    for name, part in _mapping(schema, "properties").items():
        if name in value and isinstance(part, dict):
            fixed = _fixed(part)
            if fixed and value[name] not in fixed:
                return True
    return not all(name in value for name in _names(schema.get("required")))


def _mapping(schema: dict[str, Any], keyword: str) -> dict[str, Any]:
    value = schema.get(keyword)
    return value if isinstance(value, dict) else {}


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _names(value: Any) -> list[str]:
    return [name for name in _items(value) if isinstance(name, str)]
