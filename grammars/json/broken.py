"""What breaks a subschema's own keywords, as shapes: one alternative for each way to do so.

A way that shapes cannot tell is widened to all values of its type, with a loss.
"""

from __future__ import annotations

from collections.abc import Iterator

from structspec.constraint import escape
from structspec.grammars.base import Finding
from structspec.grammars.formats import INEXACT, format_regex
from structspec.grammars.json.own import (
    Claims,
    contains_counts,
    goal_of,
    item_goals,
    limits,
    pattern_regex,
)
from structspec.grammars.json.shapes import (
    ANYTHING,
    NOTHING,
    Array,
    Contains,
    Layer,
    Limit,
    Member,
    Number,
    Object,
    Shape,
    String,
)
from structspec.grammars.regexes.syntax import complement
from structspec.grammars.schema_nodes import Node


def broken_shapes(node: Node, claims: Claims) -> Iterator[Shape]:
    """Every way to break the node's own keywords, `type` left out."""
    yield from _numbers(node)
    yield from _strings(node)
    yield from _arrays(node, claims)
    yield from _objects(node, claims)


def _loss(node: Node, keyword: str) -> frozenset[Finding]:
    return frozenset((Finding(node.pointer, keyword, "its opposite is not part of the mask"),))


def _numbers(node: Node) -> Iterator[Shape]:
    lower, upper = limits(node.keywords())
    if lower is not None:
        yield Number(upper=Limit(lower.value, not lower.is_open))
    if upper is not None:
        yield Number(lower=Limit(upper.value, not upper.is_open))
    if "multipleOf" in node.keywords():
        yield Number(losses=_loss(node, "multipleOf"))


def _strings(node: Node) -> Iterator[Shape]:
    schema = node.keywords()
    if schema.get("minLength"):
        yield String(max_length=int(schema["minLength"]) - 1)
    if "maxLength" in schema:
        yield String(min_length=int(schema["maxLength"]) + 1)
    if "pattern" in schema:
        regex = pattern_regex(schema["pattern"], f"{node.pointer}/pattern")
        if isinstance(regex, Finding):
            yield String(losses=frozenset((regex,)))
        else:
            yield String(regexes=(complement(regex),))
    name = schema.get("format")
    if isinstance(name, str) and (known := format_regex(name)) is not None:
        if name in INEXACT:
            yield String(losses=_loss(node, "format"))
        else:
            yield String(regexes=(complement(known),))
    for keyword in ("contentEncoding", "contentMediaType"):
        if node.draft.is_reference_alone and keyword in schema:
            yield String(losses=_loss(node, keyword))


def _arrays(node: Node, claims: Claims) -> Iterator[Shape]:
    schema = node.keywords()
    if schema.get("minItems"):
        yield Array(max_items=int(schema["minItems"]) - 1)
    if "maxItems" in schema:
        yield Array(min_items=int(schema["maxItems"]) + 1)
    prefix, _ = item_goals(node, claims)
    is_list = isinstance(schema.get("items"), list)
    keyword = "items" if is_list else "prefixItems"
    for index in range(len(prefix)):
        part = claims.goal(node.below(f"{keyword}/{index}", schema[keyword][index]), False)
        before = (ANYTHING,) * index
        if part is not None:
            yield Array(prefix=(*before, part), min_items=index + 1)
    rest = "additionalItems" if is_list else "items"
    if node.draft.has_item_lists and not is_list:
        prefix = ()  # `items` is of all of them
    if rest in schema and (goal := goal_of(node, rest, claims, False)) is not None:
        if prefix and goal != ANYTHING:
            yield Array(min_items=len(prefix) + 1, losses=_loss(node, rest))
        elif prefix:  # `false`: there is such an item
            yield Array(min_items=len(prefix) + 1)
        else:
            yield Array(min_items=1, contains=(Contains(goal, 1, None, node.pointer),))
    if "contains" in schema:
        yield from _not_contains(node, claims)
    if schema.get("uniqueItems") is True:
        yield Array(min_items=2, losses=_loss(node, "uniqueItems"))


def _not_contains(node: Node, claims: Claims) -> Iterator[Shape]:
    low, high = contains_counts(node)
    if low == 1:
        yield Array(rest=goal_of(node, "contains", claims, False), max_items=None)
    elif low > 1:
        goal = goal_of(node, "contains", claims)
        yield Array(contains=(Contains(goal, 0, low - 1, node.pointer),))
    if high is not None:
        goal = goal_of(node, "contains", claims)
        yield Array(contains=(Contains(goal, high + 1, None, node.pointer),))


def _objects(node: Node, claims: Claims) -> Iterator[Shape]:
    schema = node.keywords()
    if schema.get("minProperties"):
        yield Object(max_members=int(schema["minProperties"]) - 1)
    if "maxProperties" in schema:
        yield Object(min_members=int(schema["maxProperties"]) + 1)
    for name in schema.get("required", ()):
        yield without(name)
    for name, part in schema.get("properties", {}).items():
        goal = claims.goal(node.below(f"properties/{escape(name)}", part), False)
        if goal is not None:
            yield Object({name: Member(goal, True, is_foreign=True)}, (Layer(),))
    if schema.get("patternProperties"):
        yield Object(min_members=1, losses=_loss(node, "patternProperties"))
    if goal_of(node, "additionalProperties", claims, False) is not NOTHING:
        yield Object(min_members=1, losses=_loss(node, "additionalProperties"))
    if goal_of(node, "propertyNames", claims, False) is not NOTHING:
        yield Object(min_members=1, losses=_loss(node, "propertyNames"))


def without(name: str) -> Object:
    """Objects that lack a key."""
    return Object({name: Member(NOTHING, False, False, True)}, (Layer(),))


def with_keys(names: tuple[str, ...]) -> Object:
    """Objects that have these keys."""
    return Object({name: Member(ANYTHING, True, False) for name in names}, (Layer(),))
