"""Whether what follows a value of a JSON schema hangs on what the value says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from structspec.json_references import local_target

_SCALARS = {"string", "number", "integer", "boolean", "null"}
_ANNOTATIONS = {
    "$comment",
    "$defs",
    "$id",
    "$schema",
    "default",
    "definitions",
    "deprecated",
    "description",
    "examples",
    "readOnly",
    "title",
    "writeOnly",
}
# of strings and numbers they say what these look like, of arrays how long they are
_OF_VALUES = {
    "const",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "maxItems",
    "maxLength",
    "maximum",
    "minItems",
    "minLength",
    "minimum",
    "multipleOf",
    "pattern",
    "type",
}
_BRANCHES = ("anyOf", "oneOf")
_MAPS = ("properties", "$defs", "definitions")
_SINGLES = ("items", "additionalProperties")
_KNOWN = {*_ANNOTATIONS, *_OF_VALUES, *_BRANCHES, *_MAPS, *_SINGLES, "$ref", "required"}


def hangs_on_values(root: Any) -> bool:
    """Whether it may; else one value of the same place stands for another, whatever comes behind.

    So it is where objects and arrays are chosen from several, by a tag's value for instance, and
    wherever a schema says what is not known here.
    """
    return any(_may_choose(schema, root) for schema in _schemas(root))


def _may_choose(schema: Mapping[str, Any], root: Any) -> bool:
    if not schema.keys() <= _KNOWN:
        return True
    values = [schema["const"]] if "const" in schema else schema.get("enum", [])
    if not isinstance(values, list) or any(isinstance(value, dict | list) for value in values):
        return True
    branches = [name for name in _BRANCHES if name in schema]
    if not branches:
        return False
    if len(branches) > 1 or schema.keys() - _ANNOTATIONS - {*branches}:
        return True
    members = schema[branches[0]]
    if not isinstance(members, list):
        return True
    return sum(not _is_scalar(member, root) for member in members) > 1


def _is_scalar(schema: Any, root: Any) -> bool:
    for _ in range(8):  # references to references
        if not isinstance(schema, Mapping) or "$ref" not in schema:
            break
        schema = local_target(schema["$ref"], root)
    if not isinstance(schema, Mapping):
        return False
    kinds = schema.get("type")
    if kinds is None:
        return "const" in schema or "enum" in schema
    return {*(kinds if isinstance(kinds, list) else [kinds])} <= _SCALARS


def _schemas(root: Any) -> Iterator[Mapping[str, Any]]:
    """All that say what some value is."""
    waiting, seen = [root], set[int]()
    while waiting:
        schema = waiting.pop()
        if not isinstance(schema, Mapping) or id(schema) in seen:
            continue
        seen.add(id(schema))
        yield schema
        for name in _MAPS:
            below = schema.get(name)
            waiting += below.values() if isinstance(below, Mapping) else ()
        for name in _BRANCHES:
            below = schema.get(name)
            waiting += below if isinstance(below, list) else ()
        waiting += [schema[name] for name in _SINGLES if name in schema]
