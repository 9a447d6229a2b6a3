"""A JSON schema in a few words: ` with keys name (string), age (integer)`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

MAX_DEPTH = 4  # deeper nesting, and recursion, is not worth a sentence
MAX_ENUM = 12

_PLURAL = {
    "string": "strings",
    "integer": "integers",
    "number": "numbers",
    "boolean": "booleans",
    "object": "objects",
}


class _TooComplex(Exception):
    """This schema does not fit a sentence."""


def outline(json_schema: Mapping[str, Any]) -> str | None:
    """Words that complete "Answer in JSON …", or None where words would not do it justice."""
    try:
        root = _resolve(json_schema, json_schema)
        if "properties" in root:
            return f" with keys {_keys(root, json_schema, 0)}"
        return f": {_words(root, json_schema, 0)}"
    except _TooComplex:
        return None


def _words(schema: Any, root: Mapping[str, Any], depth: int) -> str:
    """One value in words, such as `list of objects with keys a (string), b (integer)`."""
    if depth > MAX_DEPTH or not isinstance(schema, Mapping):
        raise _TooComplex
    schema = _resolve(schema, root)
    if "const" in schema:
        return _literal(schema["const"])
    if "enum" in schema:
        if len(schema["enum"]) > MAX_ENUM:
            raise _TooComplex
        return "one of " + ", ".join(map(_literal, schema["enum"]))
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return " or ".join(_words(branch, root, depth + 1) for branch in schema[union])
    return _typed(schema, root, depth)


def _typed(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "array":
        return _list(schema, root, depth)
    if "properties" in schema:
        return f"object with keys {_keys(schema, root, depth)}"
    if kind == "object":
        return "object"
    if kind == "null":
        return "null"
    if kind not in _PLURAL:
        raise _TooComplex
    return str(schema.get("format") or kind) if kind == "string" else kind


def _list(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
    if "prefixItems" in schema:
        members = ", ".join(_words(item, root, depth + 1) for item in schema["prefixItems"])
        return f"list of {members}"
    items = schema.get("items", {})
    if not isinstance(items, Mapping):
        raise _TooComplex
    words = _words(items, root, depth + 1) if items else "values"
    first, _, rest = words.partition(" ")
    if first in _PLURAL and not rest.startswith("or "):
        return f"list of {_PLURAL[first]} {rest}".rstrip()
    return f"list, each {words}"


def _keys(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
    required = schema.get("required", ())
    parts = []
    for name, member in schema["properties"].items():
        words = _words(member, root, depth + 1)
        optional = "" if name in required else ", optional"
        description = _description(member)
        parts.append(f"{name} ({words}{optional}{description})")
    return ", ".join(parts)


def _description(member: Mapping[str, Any]) -> str:
    text = str(member.get("description", "")).strip().rstrip(".")
    if "\n" in text or len(text) > 100:
        raise _TooComplex
    return f": {text}" if text else ""


def _resolve(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow `$ref` within the same document, at most a few hops."""
    for _ in range(MAX_DEPTH):
        reference = schema.get("$ref")
        if reference is None:
            return schema
        target: Any = root
        if not str(reference).startswith("#/"):
            raise _TooComplex
        for part in str(reference)[2:].split("/"):
            key = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(target, Mapping) or key not in target:
                raise _TooComplex
            target = target[key]
        if not isinstance(target, Mapping):
            raise _TooComplex
        schema = target
    raise _TooComplex


def _literal(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
