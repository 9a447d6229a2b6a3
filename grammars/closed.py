"""Closing objects: where a schema is silent about other keys, admit only the declared ones."""

from __future__ import annotations

from structspec.grammars.json_schema import Document
from structspec.grammars.schema_nodes import Node, in_place

_OTHER_KEYS = ("additionalProperties", "unevaluatedProperties", "patternProperties")
_OBJECT_KEYWORDS = ("properties", "required", *_OTHER_KEYS)
_COMBINERS = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "$ref")


def close_objects(document: Document) -> tuple[str, ...]:
    """Rewrite silent objects in place to `additionalProperties: false`; says which stayed open.

    Only objects with `properties` are closed: a bare `{"type": "object"}` stays a map. An object
    whose description is spread over several subschemas (`allOf`, siblings of `$ref` ...) stays
    open, since each part would forbid the keys of the others; so does one that requires a key it
    does not declare.
    """
    nodes = document.nodes()
    spread = _spread_out(document, nodes)
    num_closed = 0
    notes = []
    for node in nodes:
        schema = node.keywords()
        if not schema.get("properties") or any(keyword in schema for keyword in _OTHER_KEYS):
            continue
        if id(node.schema) in spread:
            notes.append(f"{node.pointer}: left open, it is described in several places")
        elif set(schema.get("required", ())) - schema["properties"].keys():
            notes.append(f"{node.pointer}: left open, it requires a key it does not declare")
        else:
            schema["additionalProperties"] = False
            num_closed += 1
    if num_closed:
        notes.insert(0, f"{num_closed} object(s) closed: only declared keys are written")
    return tuple(notes)


def _spread_out(document: Document, nodes: list[Node]) -> set[int]:
    """Identities of the subschemas that share the description of one object with others."""
    spread: set[int] = set()
    waiting: list[Node] = []
    for node in nodes:
        if _combines(node):
            spread.add(id(node.schema))
            waiting += _same_value(document, node)
    while waiting:
        node = waiting.pop()
        if isinstance(node.schema, dict) and id(node.schema) not in spread:
            spread.add(id(node.schema))
            waiting += _same_value(document, node)
    return spread


def _combines(node: Node) -> bool:
    """Whether its value must satisfy more than one description at once."""
    schema = node.keywords()
    combiners = [keyword for keyword in _COMBINERS if keyword in schema]
    is_described_here = any(keyword in schema for keyword in _OBJECT_KEYWORDS)
    is_several = len(combiners) > 1 or len(schema.get("allOf", ())) > 1
    return bool(combiners) and (is_described_here or is_several or "not" in combiners)


def _same_value(document: Document, node: Node) -> list[Node]:
    target = document.target(node)
    return in_place(node) + ([] if target is None else [target])
