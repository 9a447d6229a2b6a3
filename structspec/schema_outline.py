"""A JSON schema in a few words: ` with keys name, age (in years), mood (one of "good", "bad")`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

MAX_DEPTH = 4  # deeper nesting, and recursion, is not worth a sentence
MAX_ENUM = 12
MAX_DESCRIPTION = 100


class _TooComplex(Exception):
    """This schema does not fit a sentence."""


def outline(json_schema: Mapping[str, Any]) -> str | None:
    """Words that complete "Answer in JSON…", or None where words would not do it justice.

    Types are left out: the constraint holds them, and small models answer better without.
    """
    try:
        words = _words(json_schema, json_schema, 0)
    except _TooComplex:
        return None
    if words.startswith("keys "):
        return f" with {words}"
    return f": {words}" if words else ""


def _words(schema: Any, root: Mapping[str, Any], depth: int) -> str:
    """What is to be known about one value beyond its type; often nothing."""
    if depth > MAX_DEPTH or not isinstance(schema, Mapping):
        raise _TooComplex
    schema = _resolve(schema, root)
    if "const" in schema:
        return _literal(schema["const"])
    if "enum" in schema:
        return _enum(schema["enum"])
    for union in ("anyOf", "oneOf"):
        if union in schema:
            branches = (_words(branch, root, depth + 1) for branch in schema[union])
            return " or ".join(filter(None, branches))
    if "properties" in schema:
        return f"keys {_keys(schema, root, depth)}"
    if "prefixItems" in schema:
        return _tuple(schema, root, depth)
    if schema.get("type") == "array":
        return _list(schema, root, depth)
    if not isinstance(schema.get("type"), str | list):
        raise _TooComplex
    return ""


def _enum(values: Sequence[Any]) -> str:
    if len(values) > MAX_ENUM:
        raise _TooComplex
    return "one of " + ", ".join(map(_literal, values))


def _tuple(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
    members = [_words(item, root, depth + 1) for item in schema["prefixItems"]]
    return "list of " + ", ".join(
        words or str(_resolve(item, root).get("type", "value"))
        for words, item in zip(members, schema["prefixItems"], strict=True)
    )


def _list(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
    items = schema.get("items", {})
    words = _words(items, root, depth + 1) if items else ""
    if not words:
        return "list"
    return f"list of objects with {words}" if words.startswith("keys ") else f"list, each {words}"


def _keys(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
    """`name, home (keys street, city), mood (one of "good", "bad", optional)`."""
    required = schema.get("required", ())
    parts = []
    for name, member in schema["properties"].items():
        notes = [
            _words(member, root, depth + 1),
            _description(member),
            "" if name in required else "optional",
        ]
        note = ", ".join(filter(None, notes))
        parts.append(f"{name} ({note})" if note else name)
    return ", ".join(parts)


def _description(member: Mapping[str, Any]) -> str:
    text = str(member.get("description", "")).strip().rstrip(".")
    if "\n" in text or len(text) > MAX_DESCRIPTION:
        raise _TooComplex
    return text


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
