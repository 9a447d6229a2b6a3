"""JSON schemas for xgrammar: only what it is known to hold; the rest is refused with its place."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import xgrammar

from structspec.constraint import JsonSchema
from structspec.grammars.base import Finding, Report
from structspec.grammars.closed import close_objects
from structspec.grammars.json_schema import parse
from structspec.grammars.keywords import CONSTRAINTS, findings, open_keys
from structspec.grammars.productive import check_productive
from structspec.grammars.schema_nodes import Node, types_of
from structspec.grammars.xgrammar_strings import Strings, is_format_held, string_dangers

_STYLES: dict[str, dict[str, object]] = {
    "spaced": {"any_whitespace": False, "separators": (", ", ": ")},
    "compact": {"any_whitespace": False, "separators": (",", ":")},
    "pretty": {"any_whitespace": False, "indent": 2, "separators": (",", ": ")},
    "flexible": {"any_whitespace": True, "max_whitespace_cnt": 8},
}
# keywords it drops with a line on stderr at best
_DROPPED = frozenset(
    (
        "not",
        "if",
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
        "unevaluatedItems",
        "unevaluatedProperties",
        "propertyNames",
        "patternProperties",
        "uniqueItems",
        "contains",
        "minContains",
        "maxContains",
        "$dynamicRef",
        "$recursiveRef",
    )
)
_KEYWORDS_OF = {
    "object": ("properties", "required", "additionalProperties", "minProperties", "maxProperties"),
    "array": ("items", "prefixItems", "additionalItems", "minItems", "maxItems"),
    "string": ("pattern", "format", "minLength", "maxLength"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
_MAY_BE_FALSE = ("/additionalProperties", "/items", "/additionalItems")
_ALONE = ("$ref", "anyOf", "oneOf", "enum", "const")  # siblings of these are lost


def lower_json(constraint: JsonSchema) -> tuple[Callable[[], xgrammar.Grammar], Report, bool]:
    """How to build the grammar of a schema, the report, and whether keys are free in it.

    Raises GrammarError with a pointer.
    """
    document = parse(constraint)
    check_productive(document)
    if constraint.property_order == "any":
        reason = "xgrammar writes keys in the schema's order only; use backend 'llguidance'"
        return (
            _nothing,
            Report("xgrammar", refused=(Finding("#", "property_order", reason),)),
            False,
        )
    changes = close_objects(document) if constraint.closed else ()
    nodes = document.nodes()
    advice = "use backend 'llguidance'"
    refused = tuple(finding for node in nodes for finding in _dangers(node, advice))
    approximated = tuple(finding for node in nodes for finding in _approximations(node))
    lost = {(f.pointer, f.keyword) for f in (*refused, *approximated)}
    enforced = tuple(f for f in findings(nodes) if (f.pointer, f.keyword) not in lost)
    if refused:
        return _nothing, Report("xgrammar", enforced, approximated, refused, changes), False
    has_free_keys = any(map(_admits_free_keys, nodes))
    strings = Strings()
    strings.name_all(nodes)
    text = json.dumps(document.root)
    options = _STYLES[constraint.style]

    def build() -> xgrammar.Grammar:
        return strings.put_in(xgrammar.Grammar.from_json_schema(text, strict_mode=False, **options))

    enforced = tuple(map(strings.noted, enforced))
    return build, Report("xgrammar", enforced, approximated, refused, changes), has_free_keys


def _nothing() -> xgrammar.Grammar:
    raise AssertionError("refused, so never built")


def _dangers(node: Node, advice: str) -> Iterator[Finding]:
    """What xgrammar 0.2.9 is known to lose here."""
    schema, at = node.keywords(), node.pointer

    def refuse(keyword: str, reason: str) -> Finding:
        return Finding(at, keyword, f"xgrammar {reason}; {advice}")

    if node.schema is False and not at.endswith(_MAY_BE_FALSE):
        yield refuse("false", "cannot hold a schema that admits nothing")
    for keyword in sorted(_DROPPED & schema.keys()):
        yield refuse(keyword, "ignores it")
    constraining = CONSTRAINTS & schema.keys()
    for keyword in _ALONE:
        if keyword in constraining and constraining - {keyword} - _harmless(node, keyword):
            yield refuse(keyword, "ignores what stands beside it")
    if len(schema.get("allOf", ())) > 1 or ("allOf" in schema and len(constraining) > 1):
        yield refuse("allOf", "does not merge its parts")
    reference = schema.get("$ref")
    if isinstance(reference, str) and not reference.startswith("#"):
        yield refuse("$ref", "only follows JSON pointers")
    if isinstance(reference, str) and reference.startswith("#") and reference[1:2] not in ("", "/"):
        yield refuse("$ref", "only follows JSON pointers")
    if "oneOf" in schema and not _is_disjoint(schema["oneOf"]):
        yield refuse("oneOf", "reads it as anyOf")
    types = types_of(schema)
    for name, keywords in _KEYWORDS_OF.items():
        for keyword in keywords if types is None else ():
            if keyword in schema:
                yield refuse(keyword, f"ignores it without `type: {name}`")
    if undeclared := set(schema.get("required", ())) - schema.get("properties", {}).keys():
        yield refuse("required", f"ignores undeclared keys ({sorted(undeclared)[0]!r})")
    yield from _string_dangers(node, refuse)
    yield from _number_dangers(node, refuse)


def _string_dangers(node: Node, refuse: Callable[[str, str], Finding]) -> Iterator[Finding]:
    schema = node.keywords()
    has_length = "minLength" in schema or "maxLength" in schema
    for keyword in ("pattern", "format"):
        if keyword in schema and (has_length or ("pattern" in schema and "format" in schema)):
            yield refuse(keyword, "drops one of several bounds on a string")
    yield from string_dangers(node)
    if open_keys(node):
        for name in schema.get("properties", {}):
            if json.dumps(name, ensure_ascii=False) != f'"{name}"':
                yield refuse("properties", f"lets {name!r} stand unescaped beside free keys")


def _number_dangers(node: Node, refuse: Callable[[str, str], Finding]) -> Iterator[Finding]:
    schema = node.keywords()
    types = types_of(schema) or frozenset()
    ranges = [k for k in _KEYWORDS_OF["number"] if k != "multipleOf" and k in schema]
    if "multipleOf" in schema and ("number" in types or ranges):
        yield refuse("multipleOf", "holds it for integers without a range only")
    for keyword in ranges:
        if isinstance(schema[keyword], bool):
            yield refuse(keyword, "does not know the form of draft 4")
    if types > {"integer"} or types > {"number"}:
        for keyword in ranges:
            yield refuse(keyword, "was not seen to hold it for several types")


def _approximations(node: Node) -> Iterator[Finding]:
    """What the mask holds nearly; the finished text is validated."""
    schema = node.keywords()
    if "format" in schema and not is_format_held(schema["format"]):
        yield Finding(node.pointer, "format", "the mask does not hold it exactly")
    if open_keys(node) and schema.get("properties"):
        reason = "a free key may be a declared one, escaped"
        yield Finding(node.pointer, "additionalProperties", reason)


def _admits_free_keys(node: Node) -> bool:
    """Whether a value here, or one that nothing more is said of, may have keys of any name."""
    schema = node.keywords()
    if node.schema is False or any(keyword in schema for keyword in (*_ALONE, "allOf")):
        return False  # its parts are nodes themselves
    types = types_of(schema)
    has_any_items = "items" not in schema and (types is None or "array" in types)
    is_object = types is None or "object" in types
    return has_any_items or (is_object and schema.get("additionalProperties") is not False)


def _harmless(node: Node, keyword: str) -> set[str]:
    """Siblings that say no more than the keyword itself: the type of an enum's values."""
    schema = node.keywords()
    if keyword not in ("enum", "const"):
        return set()
    values = schema["enum"] if keyword == "enum" else [schema["const"]]
    types = types_of(schema)
    names = {_type_name(value) for value in values}
    return {"type"} if types is None or names <= types else set()


def _type_name(value: object) -> str:
    names = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
    return names.get(type(value), "array" if isinstance(value, list) else "object")


def _is_disjoint(branches: list[object]) -> bool:
    """Whether no two branches share a type."""
    seen: set[str] = set()
    for branch in branches:
        types = types_of(branch) if isinstance(branch, dict) else None
        if types is None or seen & types or ({"integer", "number"} <= seen | types):
            return False
        seen |= types
    return True
