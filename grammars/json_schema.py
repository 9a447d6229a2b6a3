"""Reading a JSON schema: is it one, where are its parts, and where do its references lead."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, get_args
from urllib.parse import unquote, urldefrag, urljoin

from structspec.constraint import JsonSchema, JsonStyle, PropertyOrder, escape
from structspec.errors import GrammarError
from structspec.grammars.schema_drafts import NEWEST, Draft
from structspec.grammars.schema_nodes import (
    DEFINITIONS,
    Node,
    Schema,
    base_of,
    children,
    definitions,
    subschemas,
)
from structspec.grammars.schema_reading import draft_of_text

_SETTINGS = {
    "style": get_args(JsonStyle),
    "property_order": get_args(PropertyOrder),
    "closed": (True, False),
}
_IDENTIFIERS = frozenset(("$id", "id", "$anchor", "$dynamicAnchor"))
_QUOTED_IDENTIFIERS = tuple(f'"{name}"' for name in _IDENTIFIERS)


@dataclass(slots=True)
class Document:
    """A validated schema: `root` may be rewritten in place, `nodes` gives its parts."""

    root: Schema
    draft: Draft = NEWEST
    _resources: dict[str, Node] = field(default_factory=dict)  # by absolute URI, anchors included

    def root_node(self) -> Node:
        """The root with its place."""
        return Node("#", self.root, draft=self.draft)

    def nodes(self, *, with_definitions: bool = False) -> list[Node]:
        """Every subschema that the root uses, references followed; each once, root first.

        With definitions also those that nothing refers to.
        """
        seen: set[int] = set()
        found: list[Node] = []
        waiting = [self.root_node()]
        while waiting:
            node = waiting.pop()
            if isinstance(node.schema, dict):
                if id(node.schema) in seen:
                    continue
                seen.add(id(node.schema))
            found.append(node)
            below = [*children(node)]
            if (target := self.target(node)) is not None:
                below.append(target)
            if with_definitions:
                below += definitions(node)
            waiting.extend(reversed(below))
        return found

    def target(self, node: Node) -> Node | None:
        """What the node's `$ref` leads to, if it has one; GrammarError if that is nowhere."""
        reference = node.keywords().get("$ref")
        if not isinstance(reference, str):
            return None
        uri, fragment = urldefrag(urljoin(base_of(node), reference))
        resource = self._resources.get(uri)
        if resource is None:
            raise GrammarError(
                f"{reference!r} is not in this schema and is not fetched; copy it into `$defs`",
                pointer=f"{node.pointer}/$ref",
            )
        if fragment and not fragment.startswith("/"):
            anchored = self._resources.get(f"{uri}#{fragment}")
            if anchored is not None:
                return anchored
            raise _no_target(node, reference, f"no `$anchor` is called {fragment!r}")
        return _follow(resource, fragment, node, reference)


def parse(constraint: JsonSchema) -> Document:
    """A private copy of the schema, checked: GrammarError tells where it is wrong."""
    _check_settings(constraint)
    root = json.loads(constraint.text)
    if not isinstance(root, (dict, bool)):
        raise GrammarError("a schema is an object, true or false", pointer="#")
    document = Document(root, draft_of_text(constraint.text))
    document._resources[""] = document.root_node()
    if any(name in constraint.text for name in _QUOTED_IDENTIFIERS):
        _register(document)
    if '"$ref"' in constraint.text:
        for node in document.nodes(with_definitions=True):
            if "$ref" in node.keywords():
                _check_cycle(document, node)
    return document


def _check_settings(constraint: JsonSchema) -> None:
    """Raise GrammarError for a setting that there is none of."""
    for name, allowed in _SETTINGS.items():
        value = getattr(constraint, name)
        if value not in allowed:
            raise GrammarError(
                f"{name} must be one of {', '.join(map(str, allowed))}, not {value!r}"
            )


def _register(document: Document) -> None:
    """Note every `$id` and anchor."""
    resources = document._resources
    for node in subschemas(resources[""]):
        if not _IDENTIFIERS.isdisjoint(node.keywords()):
            _register_node(resources, node)


def _register_node(resources: dict[str, Node], node: Node) -> None:
    schema, base = node.keywords(), base_of(node)
    if base != node.base_uri:
        resources.setdefault(base, node)
    id_keyword = node.draft.id_keyword
    anchors = () if node.draft.is_reference_alone else ("$anchor", "$dynamicAnchor")
    for keyword in (*anchors, id_keyword):
        name = schema.get(keyword)
        if isinstance(name, str):
            anchor = urldefrag(name)[1] if keyword == id_keyword else name
            if anchor:
                resources.setdefault(f"{base}#{anchor}", node)


def _follow(resource: Node, fragment: str, source: Node, reference: str) -> Node:
    """Walk a JSON pointer down from a resource."""
    node = resource
    for raw in fragment.split("/")[1:]:
        part = unquote(raw).replace("~1", "/").replace("~0", "~")
        value: Any = node.schema
        if isinstance(value, dict) and part in value:
            node = node.below(escape(part), value[part])
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            node = node.below(part, value[int(part)])
        else:
            raise _no_target(source, reference, f"there is no {part!r} in {node.pointer}")
    if not isinstance(node.schema, (dict, bool)):
        raise _no_target(source, reference, "what it leads to is not a schema")
    return node


def _no_target(node: Node, reference: str, reason: str) -> GrammarError:
    return GrammarError(f"{reference!r} leads nowhere: {reason}", pointer=f"{node.pointer}/$ref")


def _check_cycle(document: Document, node: Node) -> None:
    """Raise GrammarError where references only lead to references, round and round."""
    seen = {id(node.schema)}
    target = document.target(node)
    while target is not None and set(target.keywords()) <= {"$ref", *DEFINITIONS}:
        if id(target.schema) in seen:
            raise GrammarError(
                f"{node.keywords()['$ref']!r} refers only to itself", pointer=f"{node.pointer}/$ref"
            )
        seen.add(id(target.schema))
        target = document.target(target)
