"""Whether any finite value satisfies a schema: one that requires itself for ever has none."""

from __future__ import annotations

from structspec.constraint import escape
from structspec.errors import GrammarError
from structspec.grammars.json_schema import Document
from structspec.grammars.schema_nodes import Node, types_of


def check_productive(document: Document) -> None:
    """Raise GrammarError where the root only has infinite values.

    The least fixed point of: a node is finite if what it demands (its reference, every part of
    `allOf`, one branch of a union, its required properties and items) is finite already.
    """
    nodes = document.nodes()
    finite: set[str] = set()
    num_before = -1
    while num_before < len(finite):
        num_before = len(finite)
        finite |= {node.pointer for node in nodes if _is_finite(document, node, finite)}
    if "#" not in finite:
        stuck = next((n.pointer for n in reversed(nodes) if n.pointer not in finite), "#")
        raise GrammarError(
            "no finite value satisfies this: it is false, or requires itself for ever",
            pointer=stuck,
        )


def _is_finite(document: Document, node: Node, finite: set[str]) -> bool:
    if node.schema is False:
        return False
    schema, at = node.keywords(), node.pointer
    if schema.get("not") in ({}, True):  # not anything, which is how `false` is spelled as a dict
        return False
    if "const" in schema or "enum" in schema:
        return True
    target = document.target(node)
    demanded = [] if target is None else [target.pointer]
    demanded += [f"{at}/allOf/{i}" for i in range(len(schema.get("allOf", ())))]
    if not finite.issuperset(demanded):
        return False
    for union in ("anyOf", "oneOf"):
        branches = [f"{at}/{union}/{i}" for i in range(len(schema.get(union, ())))]
        if branches and finite.isdisjoint(branches):
            return False
    types = types_of(schema)
    if types is None or types - {"object", "array"}:
        return True
    return any(finite.issuperset(_parts(node, name)) for name in types)


def _parts(node: Node, type_name: str) -> list[str]:
    """Pointers of the parts that every object (or array) described here must have."""
    schema, at = node.keywords(), node.pointer
    if type_name == "object":
        declared = schema.get("properties", {})
        return [f"{at}/properties/{escape(k)}" for k in schema.get("required", ()) if k in declared]
    num_items = schema.get("minItems", 0)
    keyword = "prefixItems" if "prefixItems" in schema else "items"
    prefix = schema.get(keyword, ())
    if isinstance(prefix, list):
        parts = [f"{at}/{keyword}/{i}" for i in range(min(int(num_items), len(prefix)))]
        rest = "items" if keyword == "prefixItems" else "additionalItems"
        is_longer = num_items > len(prefix)
        return parts + (
            [f"{at}/{rest}"] if is_longer and isinstance(schema.get(rest), dict) else []
        )
    return [f"{at}/items"] if num_items and "items" in schema else []
