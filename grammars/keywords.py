"""The keywords of JSON Schema: which constrain, which only describe."""

from __future__ import annotations

from collections.abc import Iterable

from structspec.grammars.base import Finding
from structspec.grammars.schema_nodes import Node, types_of

ANNOTATIONS = frozenset(
    (
        "$schema",
        "$id",
        "id",
        "$anchor",
        "$dynamicAnchor",
        "$recursiveAnchor",
        "$comment",
        "$vocabulary",
        "$defs",
        "definitions",
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "readOnly",
        "writeOnly",
        "contentEncoding",
        "contentMediaType",
        "contentSchema",
    )
)
CONSTRAINTS = frozenset(
    (
        "$ref",
        "$dynamicRef",
        "$recursiveRef",
        "type",
        "enum",
        "const",
        "multipleOf",
        "maximum",
        "exclusiveMaximum",
        "minimum",
        "exclusiveMinimum",
        "maxLength",
        "minLength",
        "pattern",
        "format",
        "maxItems",
        "minItems",
        "uniqueItems",
        "contains",
        "maxContains",
        "minContains",
        "prefixItems",
        "items",
        "additionalItems",
        "unevaluatedItems",
        "maxProperties",
        "minProperties",
        "required",
        "dependentRequired",
        "dependentSchemas",
        "dependencies",
        "properties",
        "patternProperties",
        "additionalProperties",
        "propertyNames",
        "unevaluatedProperties",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "if",
        "then",
        "else",
    )
)


def findings(nodes: Iterable[Node]) -> tuple[Finding, ...]:
    """Every constraining keyword with its place; unknown words are annotations, by the standard."""
    return tuple(
        Finding(node.pointer, keyword)
        for node in nodes
        for keyword in node.keywords()
        if keyword in CONSTRAINTS
    )


def open_keys(node: Node) -> bool:
    """Whether an object here may have keys that `properties` does not declare."""
    schema = node.keywords()
    is_object = types_of(schema) == frozenset({"object"}) or "properties" in schema
    is_map = isinstance(schema.get("additionalProperties"), dict) or "patternProperties" in schema
    return is_map or (is_object and schema.get("additionalProperties") is not False)
