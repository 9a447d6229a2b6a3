"""A schema as a tree: each subschema with its place, and the subschemas below it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urldefrag, urljoin

from structspec.constraint import escape
from structspec.grammars.schema_drafts import NEWEST, Draft

Schema = dict[str, Any] | bool

_IN_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
_IN_PLACE = ("not", "if", "then", "else")
_LISTS = (*_IN_PLACE_LISTS, "prefixItems", "items")
_MAPS = ("properties", "patternProperties", "dependentSchemas", "dependencies")
DEFINITIONS = ("$defs", "definitions")
_SINGLES = (
    *_IN_PLACE,
    "items",
    "additionalItems",
    "additionalProperties",
    "contains",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_MAP, _LIST, _SINGLE = range(3)
_FORMS = {
    **dict.fromkeys(_MAPS, _MAP),
    **dict.fromkeys(_LISTS, _LIST),
    **dict.fromkeys(_SINGLES, _SINGLE),
}


@dataclass(frozen=True, slots=True)
class Node:
    """One subschema and its place."""

    pointer: str
    schema: Schema
    base_uri: str = ""
    draft: Draft = NEWEST

    def below(self, path: str, schema: Schema) -> Node:
        """A part of this one."""
        return Node(f"{self.pointer}/{path}", schema, base_of(self), self.draft)

    def keywords(self) -> dict[str, Any]:
        """Its keywords; a bool has none."""
        return self.schema if isinstance(self.schema, dict) else {}


def children(node: Node) -> Iterator[Node]:
    """The subschemas directly below, definitions and reference targets left out."""
    if not isinstance(node.schema, dict):
        return
    at, draft, base = node.pointer, node.draft, ""
    is_based = False  # most subschemas have nothing below
    for keyword, value in node.schema.items():
        form = _FORMS.get(keyword)
        if form is None:
            continue
        if not is_based:
            base, is_based = base_of(node), True
        if isinstance(value, list):
            if form is not _MAP:
                for index, item in enumerate(value):
                    yield Node(f"{at}/{keyword}/{index}", item, base, draft)
        elif form is _SINGLE:
            if isinstance(value, (dict, bool)):
                yield Node(f"{at}/{keyword}", value, base, draft)
        elif form is _MAP and isinstance(value, dict):
            for name, item in value.items():
                if isinstance(item, (dict, bool)):  # `dependencies` may hold lists of names
                    yield Node(f"{at}/{keyword}/{escape(name)}", item, base, draft)


def in_place(node: Node) -> list[Node]:
    """The subschemas that describe the same value as the node itself."""
    prefixes = tuple(
        f"{node.pointer}/{keyword}/" for keyword in (*_IN_PLACE_LISTS, "dependentSchemas")
    )
    singles = {f"{node.pointer}/{keyword}" for keyword in _IN_PLACE}
    return [c for c in children(node) if c.pointer.startswith(prefixes) or c.pointer in singles]


def definitions(node: Node) -> Iterator[Node]:
    """The subschemas kept below for reference."""
    schema = node.keywords()
    for keyword in DEFINITIONS:
        if keyword not in schema:
            continue
        for name, value in _mapping(schema, keyword):
            if isinstance(value, (dict, bool)):
                yield node.below(f"{keyword}/{escape(name)}", value)


def subschemas(root: Node) -> Iterator[Node]:
    """Every subschema that is written below a root, itself first, definitions among them."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node.schema, dict):
            waiting += children(node)
            waiting += definitions(node)


def types_of(schema: dict[str, Any]) -> frozenset[str] | None:
    """The types `type` names; None where it is absent."""
    value = schema.get("type")
    if value is None:
        return None
    return frozenset([value] if isinstance(value, str) else value)


def _mapping(schema: dict[str, Any], keyword: str) -> list[tuple[str, Any]]:
    value = schema.get(keyword)
    return list(value.items()) if isinstance(value, dict) else []


def base_of(node: Node) -> str:
    """The URI that references inside the node start from."""
    identifier = node.keywords().get(node.draft.id_keyword)
    if not isinstance(identifier, str):
        return node.base_uri
    if node.draft.is_reference_alone and "$ref" in node.keywords():
        return node.base_uri
    return urldefrag(urljoin(node.base_uri, identifier))[0]
