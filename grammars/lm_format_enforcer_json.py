"""JSON schemas for lm-format-enforcer: what it would only fail at while it writes is refused.

It reads a subschema when the text comes to it, and raises then for what it does not know. So each
one that it may come to is read here, and refused with its place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from interegular.fsm import anything_else
from lmformatenforcer import CharacterLevelParserConfig, JsonSchemaParser
from lmformatenforcer.external.jsonschemaobject import JsonSchemaObject
from lmformatenforcer.jsonschemaparser import StringParsingState, get_parser

from structspec.constraint import escape
from structspec.errors import UnsupportedConstraint
from structspec.grammars.json_schema import Document
from structspec.grammars.schema_nodes import Node, children

_NAME = "lm-format-enforcer"
# the keywords below which it reads; what stands below others it passes over
_READ = frozenset(("properties", "items", "additionalProperties", "anyOf", "oneOf", "allOf"))
_DEFINITIONS = ("definitions", "$defs")  # where it looks, the first alone if it is there
_MERGED = re.compile(r"/allOf/\d+$")
_ANY = {"anyOf": [{"type": name} for name in ("string", "number", "boolean", "null")]}
_ANY["anyOf"] += [{"type": "object"}, {"type": "array"}]


class _Word(str):
    """A text that the library writes without quotes: it only puts them around a plain `str`."""

    __slots__ = ()


def make_readable(document: Document, alphabet: set[str]) -> None:
    """Rewrite what lm-format-enforcer can hold in other words, in place."""
    if document.root is True:
        document.root = {}
    for node in list(_read(document)):
        schema = node.keywords()
        if schema.get("additionalProperties") in (True, {}):
            del schema["additionalProperties"]
        _replace_true(schema)
        values = _values(schema)
        if values is not None and not any(map(_is_unwritable, values)):
            # of several those that tokens can spell; of none of them the check says why
            words = [word for word in map(_constant, values) if alphabet.issuperset(word)]
            if words:
                schema.pop("enum", None)
                schema.pop("const", None)
                schema["anyOf"] = [{"const": word} for word in words]
        if "oneOf" in schema and not {"anyOf", "properties", "required"} & schema.keys():
            schema["anyOf"] = schema.pop("oneOf")  # it takes the branches for objects


def check_readable(document: Document, config: CharacterLevelParserConfig) -> None:
    """Raise UnsupportedConstraint for the first subschema that the library cannot read."""
    parser = JsonSchemaParser(None, config)  # of anything: it would read the root at once
    for node in reversed(list(_read(document))):  # the innermost is to blame
        for keyword, reason in _flaws(node, document):
            raise _refused(node, keyword, reason)
        is_anything = node.pointer == "#" and not node.keywords()
        if is_anything or _MERGED.search(node.pointer):  # parts of `allOf` are read as one
            continue
        try:
            parser.context.model_class = JsonSchemaObject(**document.root_node().keywords())
            state = get_parser(parser, JsonSchemaObject(**node.keywords()))
        except Exception as error:  # it raises whatever Python does with what it did not expect
            raise _refused(node, _blamed(node), f"it cannot read this ({error})") from None
        for keyword, characters in _written(node, state):
            if missing := characters.difference(config.alphabet):
                reason = f"no token is the character {min(missing)!r}, or it needs an escape"
                raise _refused(node, keyword, reason)


def _read(document: Document) -> Iterator[Node]:
    """The subschemas that the library may come to."""
    seen: set[int] = set()
    waiting = [document.root_node()]
    while waiting:
        node = waiting.pop()
        if id(node.schema) in seen and isinstance(node.schema, dict):
            continue
        seen.add(id(node.schema))
        yield node
        for child in children(node):
            if child.pointer[len(node.pointer) + 1 :].split("/")[0] in _READ and not (
                child.schema is False and child.pointer.endswith("/additionalProperties")
            ):
                waiting.append(child)
        if (target := document.target(node)) is not None:
            waiting.append(target)


def _written(node: Node, state: object) -> Iterator[tuple[str, set[str]]]:
    """The characters that the walk may come to, by keyword."""
    schema = node.keywords()
    yield "properties", {c for name in schema.get("properties", {}) for c in name}
    for keyword in ("const", "enum"):
        if keyword in schema:
            texts = filter(lambda value: isinstance(value, str), _values(schema) or ())
            yield keyword, {c for text in texts for c in text}
    if isinstance(state, StringParsingState) and state.regex_parser is not None:
        alphabet = state.regex_parser.context.pattern.alphabet
        yield "pattern", {c for c in alphabet if c != anything_else}


def _replace_true(schema: dict[str, Any]) -> None:
    """Write out the subschemas of one that admit anything: it knows no `true`."""
    if schema.get("items") in (True, {}):
        del schema["items"]
    for name, value in schema.get("properties", {}).items():
        if value is True or value == {}:
            schema["properties"][name] = json.loads(json.dumps(_ANY))
    for keyword in ("anyOf", "oneOf", "allOf"):
        for index, value in enumerate(schema.get(keyword, ())):
            if value is True or value == {}:
                schema[keyword][index] = json.loads(json.dumps(_ANY))


def _values(schema: dict[str, Any]) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return values if isinstance(values, list) else None


def _constant(value: Any) -> str:
    return value if isinstance(value, str) else _Word(json.dumps(value))


def _is_unwritable(value: Any) -> bool:
    """Whether a value has quotes or escapes inside, of which the library loses track."""
    return isinstance(value, (dict, list)) or (isinstance(value, str) and _has_escapes(value))


def _has_escapes(text: str) -> bool:
    return json.dumps(text, ensure_ascii=False) != f'"{text}"'


def _flaws(node: Node, document: Document) -> Iterator[tuple[str, str]]:
    """What it would read and then fail at."""
    schema = node.keywords()
    for keyword in ("const", "enum"):
        values = _values({keyword: schema[keyword]} if keyword in schema else {})
        if values is not None and any(map(_is_unwritable, values)):
            yield keyword, "it holds no objects, arrays or texts with escapes as values"
    if node.schema is False:
        yield "false", "it knows no schema that admits nothing"
    names = schema.get("properties", {})
    if any(map(_has_escapes, names)):
        yield "properties", "it holds no keys with escapes"
    if names and set(schema.get("required", ())) - names.keys():
        yield "required", "it never ends objects with undeclared required keys"
    if len(parts := schema.get("allOf", ())) > 1 and not all(map(_has_properties, parts)):
        yield "allOf", "it merges objects with properties only"
    if schema.get("minLength", 0) > schema.get("maxLength", float("inf")):
        yield "minLength", "no text is as long and as short as that"
    if schema.get("minItems", 0) > schema.get("maxItems", float("inf")):
        yield "minItems", "no array is as long and as short as that"
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference not in _references(document):
        yield "$ref", "it only follows names in `definitions` or `$defs` of the whole"


def _has_properties(part: Any) -> bool:
    return isinstance(part, dict) and "properties" in part


def _references(document: Document) -> set[str]:
    root = document.root_node().keywords()
    for keyword in _DEFINITIONS:
        if keyword in root:
            names = [name for name in root[keyword] if escape(name) == name and "%" not in name]
            return {f"#/{keyword}/{name}" for name in names}
    return set()


def _blamed(node: Node) -> str:
    """The keyword that stands where the library found nothing that it reads."""
    schema = node.keywords()
    return next((word for word in ("not", "pattern", "if", "type") if word in schema), "type")


def _refused(node: Node, keyword: str, reason: str) -> UnsupportedConstraint:
    return UnsupportedConstraint(
        f"{keyword}: {reason}; use backend 'llguidance'", pointer=node.pointer
    )
