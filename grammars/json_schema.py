"""Reading a JSON schema: is it one, where are its parts, and where do its references lead."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, get_args
from urllib.parse import unquote, urldefrag, urljoin

import jsonschema
from jsonschema.exceptions import SchemaError

from structspec.constraint import JsonSchema, JsonStyle, PropertyOrder, find_half_character
from structspec.errors import GrammarError
from structspec.grammars.keyword_values import TYPES, looks_right, wrong_in_every_draft

Schema = dict[str, Any] | bool

_OLD_REFERENCE = re.compile("draft-0[3467]/")

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
_SETTINGS = {
    "style": get_args(JsonStyle),
    "property_order": get_args(PropertyOrder),
    "closed": (True, False),
}
_IDENTIFIERS = frozenset(("$id", "id", "$anchor", "$dynamicAnchor"))
_MAX_NUMBER = sys.float_info.max
# patterns are ECMAScript's, which Python's `re` cannot judge: a backend does
_NO_FORMATS = jsonschema.FormatChecker(formats=())
# tried in this order where a schema does not say which draft it follows
_DRAFTS = (
    jsonschema.Draft202012Validator,
    jsonschema.Draft7Validator,
    jsonschema.Draft4Validator,
)


@dataclass(frozen=True, slots=True)
class Node:
    """One subschema and its place."""

    pointer: str
    schema: Schema
    base_uri: str = ""
    id_keyword: str = "$id"  # "id" in draft 4 and before
    is_reference_alone: bool = False  # up to draft 7 what stands beside `$ref` says nothing

    def below(self, path: str, schema: Schema) -> Node:
        """A part of this one."""
        return Node(
            f"{self.pointer}/{path}",
            schema,
            base_of(self),
            self.id_keyword,
            self.is_reference_alone,
        )

    def keywords(self) -> dict[str, Any]:
        """Its keywords; a bool has none."""
        return self.schema if isinstance(self.schema, dict) else {}


@dataclass(slots=True)
class Document:
    """A validated schema: `root` may be rewritten in place, `nodes` gives its parts."""

    root: Schema
    _resources: dict[str, Node] = field(default_factory=dict)  # by absolute URI, anchors included

    def root_node(self) -> Node:
        """The root with its place."""
        named = self.root.get("$schema") if isinstance(self.root, dict) else None
        return Node(
            "#",
            self.root,
            id_keyword="id" if _is_old_draft(named) else "$id",
            is_reference_alone=self.is_reference_alone,
        )

    @property
    def is_reference_alone(self) -> bool:
        """Whether `$ref` makes what stands beside it say nothing, as it did up to draft 7."""
        named = self.root.get("$schema") if isinstance(self.root, dict) else None
        return isinstance(named, str) and _OLD_REFERENCE.search(named) is not None

    @property
    def is_integer_spelled(self) -> bool:
        """Whether an integer is one by its spelling, so that 1.0 is none, as up to draft 4."""
        named = self.root.get("$schema") if isinstance(self.root, dict) else None
        return _is_old_draft(named)

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
    _check_values(root)
    if isinstance(root, dict) and not isinstance(root.get("$schema", ""), str):
        raise GrammarError("$schema is the URI of a draft", pointer="#/$schema")
    document = Document(root)
    _check_keywords(document)
    if '"$ref"' in constraint.text:
        for node in document.nodes(with_definitions=True):
            if "$ref" in node.keywords():
                _check_cycle(document, node)
    return document


def _check_keywords(document: Document) -> None:
    """Note every `$id` and anchor; raise GrammarError where a keyword has no value of its kind."""
    is_old = document.is_integer_spelled
    doubtful = [
        n for n in _register(document) if not looks_right(n.keywords(), is_old_draft=is_old)
    ]
    if not doubtful:
        return
    check_meta_schema(document.root)
    root = document.root
    if isinstance(root, dict) and "$schema" not in root:
        # an older draft took it, which may only mean that it does not know the keyword
        for node in doubtful:
            if (keyword := wrong_in_every_draft(node.keywords())) is not None:
                raise GrammarError(
                    f"{keyword} cannot be {node.keywords()[keyword]!r}",
                    pointer=f"{node.pointer}/{keyword}",
                )


def _check_settings(constraint: JsonSchema) -> None:
    """Raise GrammarError for a setting that there is none of."""
    for name, allowed in _SETTINGS.items():
        value = getattr(constraint, name)
        if value not in allowed:
            raise GrammarError(
                f"{name} must be one of {', '.join(map(str, allowed))}, not {value!r}"
            )


def _check_values(root: Schema) -> None:
    """Raise GrammarError for text and numbers that Python can hold and the libraries cannot."""
    waiting: list[tuple[str, Any]] = [("#", root)]
    while waiting:
        pointer, value = waiting.pop()
        if isinstance(value, dict):
            for key in value:
                _check_text(key, pointer)
            waiting += [(f"{pointer}/{escape(key)}", item) for key, item in value.items()]
        elif isinstance(value, list):
            waiting += [(f"{pointer}/{index}", item) for index, item in enumerate(value)]
        elif isinstance(value, str):
            _check_text(value, pointer)
        elif isinstance(value, float) and value != value:
            raise GrammarError("NaN is not JSON", pointer=pointer)
        elif isinstance(value, int | float) and not -_MAX_NUMBER <= value <= _MAX_NUMBER:
            raise GrammarError(f"a number beyond {_MAX_NUMBER:g} cannot be held", pointer=pointer)


def _check_text(text: str, pointer: str) -> None:
    if find_half_character(text) is not None:
        raise GrammarError(f"{text!r} holds half a surrogate pair", pointer=pointer)


def _is_old_draft(named: object) -> bool:
    return isinstance(named, str) and ("draft-03" in named or "draft-04" in named)


def drafts_of(root: Schema) -> tuple[Any, ...]:
    """jsonschema's validator class of the draft that is named, else those to try in turn."""
    named = jsonschema.validators.validator_for(root, default=None)
    return _DRAFTS if named is None else (named,)


def check_meta_schema(root: Schema) -> None:
    """Raise GrammarError unless every keyword has a value of its kind."""
    named = root.get("$schema") if isinstance(root, dict) else None
    first: SchemaError | None = None
    drafts = drafts_of(root)
    for draft in drafts:
        try:
            draft.check_schema(root, format_checker=_NO_FORMATS)
            return
        except SchemaError as error:
            first = first or error
    assert first is not None
    where = "#" + "".join(f"/{escape(str(part))}" for part in first.absolute_path)
    draft_name = f" (by {named})" if len(drafts) == 1 and named else ""
    raise GrammarError(f"{_flaw(first)}{draft_name}", pointer=where) from None


def _flaw(error: SchemaError) -> str:
    """What the meta-schema says, in words where its own would be a list of schemas."""
    if error.validator == "anyOf" and error.absolute_path and error.absolute_path[-1] == "type":
        return f"{error.instance!r} is not a type; use one of {', '.join(sorted(TYPES))}"
    return str(error.message)


def children(node: Node) -> Iterator[Node]:
    """The subschemas directly below, definitions and reference targets left out."""
    for keyword, value in node.keywords().items():
        form = _FORMS.get(keyword)
        if form is None:
            continue
        if isinstance(value, list):
            if form is not _MAP:
                for index, item in enumerate(value):
                    yield node.below(f"{keyword}/{index}", item)
        elif form is _SINGLE:
            if isinstance(value, (dict, bool)):
                yield node.below(keyword, value)
        elif form is _MAP and isinstance(value, dict):
            for name, item in value.items():
                if isinstance(item, (dict, bool)):  # `dependencies` may hold lists of names
                    yield node.below(f"{keyword}/{escape(name)}", item)


def in_place(node: Node) -> list[Node]:
    """The subschemas that describe the same value as the node itself."""
    prefixes = tuple(
        f"{node.pointer}/{keyword}/" for keyword in (*_IN_PLACE_LISTS, "dependentSchemas")
    )
    singles = {f"{node.pointer}/{keyword}" for keyword in _IN_PLACE}
    return [c for c in children(node) if c.pointer.startswith(prefixes) or c.pointer in singles]


def definitions(node: Node) -> Iterator[Node]:
    """The subschemas kept below for reference."""
    for keyword in DEFINITIONS:
        for name, value in _mapping(node.keywords(), keyword):
            if isinstance(value, (dict, bool)):
                yield node.below(f"{keyword}/{escape(name)}", value)


def escape(part: str) -> str:
    """A name as one part of a JSON pointer."""
    if "~" not in part and "/" not in part:
        return part
    return part.replace("~", "~0").replace("/", "~1")


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
    identifier = node.keywords().get(node.id_keyword)
    if not isinstance(identifier, str):
        return node.base_uri
    if node.is_reference_alone and "$ref" in node.keywords():
        return node.base_uri
    return urldefrag(urljoin(node.base_uri, identifier))[0]


def _register(document: Document) -> Iterator[Node]:
    """Note every `$id` and anchor, on the way through all subschemas."""
    resources = document._resources
    root = document.root_node()
    resources[""] = root
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if not isinstance(node.schema, dict):
            continue
        yield node
        if not _IDENTIFIERS.isdisjoint(node.schema):
            _register_node(resources, node)
        waiting += [*children(node), *definitions(node)]


def _register_node(resources: dict[str, Node], node: Node) -> None:
    schema, base = node.keywords(), base_of(node)
    if base != node.base_uri:
        resources.setdefault(base, node)
    for keyword in ("$anchor", "$dynamicAnchor", node.id_keyword):
        name = schema.get(keyword)
        if isinstance(name, str):
            anchor = urldefrag(name)[1] if keyword == node.id_keyword else name
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
