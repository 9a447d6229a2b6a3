"""A subschema's own keywords as shapes: what it says of each type, and what breaks it."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Protocol

from structspec.constraint import escape
from structspec.errors import GrammarError, UnsupportedConstraint
from structspec.grammars.base import Finding
from structspec.grammars.formats import INEXACT, format_regex
from structspec.grammars.json.ranges import MAX_EXACT
from structspec.grammars.json.shapes import (
    ANY_SHAPES,
    ANYTHING,
    NOTHING,
    Array,
    Boolean,
    Contains,
    Evaluated,
    Goal,
    Layer,
    Limit,
    Losses,
    Member,
    Null,
    Number,
    Object,
    Shape,
    String,
    both,
    bounded_array,
)
from structspec.grammars.regexes.parse import parse_search
from structspec.grammars.regexes.syntax import Regex
from structspec.grammars.schema_nodes import Node, types_of

STRING_KEYWORDS = ("minLength", "maxLength", "pattern", "format")
NUMBER_KEYWORDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
ARRAY_KEYWORDS = (
    "items",
    "prefixItems",
    "additionalItems",
    "minItems",
    "maxItems",
    "uniqueItems",
    "contains",
)
OBJECT_KEYWORDS = (
    "properties",
    "patternProperties",
    "additionalProperties",
    "propertyNames",
    "required",
    "minProperties",
    "maxProperties",
)
_CONTENT_KEYWORDS = ("contentEncoding", "contentMediaType")
_BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_MAX_COUNT = 2**31
OWN_KEYWORDS = frozenset(
    (
        "type",
        *STRING_KEYWORDS,
        *NUMBER_KEYWORDS,
        *ARRAY_KEYWORDS,
        *OBJECT_KEYWORDS,
        *_CONTENT_KEYWORDS,
    )
)


class Claims(Protocol):
    """Where subschemas get their claims from."""

    def goal(self, node: Node, holds: bool = True) -> Goal:
        """The goal of meeting, or breaking, one subschema."""


def own_shapes(node: Node, claims: Claims) -> tuple[Shape, ...]:
    """One shape for each type that the subschema's own keywords leave possible."""
    schema = node.keywords()
    types = types_of(schema)
    shapes: list[Shape | None] = []
    if types is None or "null" in types:
        shapes.append(Null())
    if types is None or "boolean" in types:
        shapes.append(Boolean())
    if types is None or types & {"number", "integer"}:
        is_integer = None if types is None or "number" in types else True
        shapes.append(_number(schema, is_integer))
    if types is None or "string" in types:
        shapes.append(_string(node))
    if types is None or "array" in types:
        shapes.append(_array(node, claims))
    if types is None or "object" in types:
        shapes.append(_object(node, claims))
    return tuple(shape for shape in shapes if shape is not None)


def other_types(types: frozenset[str]) -> Iterator[Shape]:
    """What `type` rules out."""
    names = ("null", "boolean", "number", "string", "array", "object")
    for name, shape in zip(names, ANY_SHAPES, strict=True):
        if name == "number" and "integer" in types and "number" not in types:
            yield Number(is_integer=False)
        elif name not in types:
            yield shape


# Numbers


def number(value: float | int) -> Fraction:
    """A JSON number as it was written: 0.1 is a tenth; beyond 2**53 a float is what it holds."""
    is_whole = isinstance(value, int) or abs(value) > MAX_EXACT
    return Fraction(value) if is_whole else Fraction(str(value))


def limits(schema: dict[str, Any]) -> tuple[Limit | None, Limit | None]:
    """The ends of the range; draft 4 has exclusiveMinimum as a bool beside minimum."""
    lower = _limit(schema, "minimum", "exclusiveMinimum", sign=1)
    return lower, _limit(schema, "maximum", "exclusiveMaximum", sign=-1)


def _limit(schema: dict[str, Any], closed: str, opened: str, *, sign: int) -> Limit | None:
    found: list[Limit] = []
    is_open = schema.get(opened)
    if closed in schema:
        found.append(Limit(number(schema[closed]), is_open is True))
    if is_open is not None and not isinstance(is_open, bool):
        found.append(Limit(number(is_open), True))
    return max(found, key=lambda end: (sign * end.value, end.is_open), default=None)


def _number(schema: dict[str, Any], is_integer: bool | None) -> Number | None:
    lower, upper = limits(schema)
    multiple = number(schema["multipleOf"]) if "multipleOf" in schema else None
    if lower and upper:
        is_one = lower.value == upper.value
        if lower.value > upper.value or (is_one and (lower.is_open or upper.is_open)):
            return None
    return Number(is_integer, lower, upper, multiple)


# Strings


def pattern_regex(pattern: str, pointer: str) -> Regex | Finding:
    """A pattern's regex; a Finding where no automaton holds it; GrammarError if malformed."""
    keyword = pointer.rsplit("/", 1)[-1]
    try:
        return parse_search(pattern)
    except UnsupportedConstraint as error:
        return Finding(pointer.rsplit("/", 1)[0], keyword, f"{pattern!r}: {error}")
    except GrammarError as error:
        raise GrammarError(
            f"the regex {pattern!r} is malformed: {error}", pointer=pointer
        ) from None


def _string(node: Node) -> String | None:
    schema = node.keywords()
    low, high = _least(node, "minLength"), _whole(schema.get("maxLength"))
    if high is not None and low > high:
        return None
    regexes: list[Regex] = []
    losses: list[Finding] = []
    if "pattern" in schema:
        regex = pattern_regex(schema["pattern"], f"{node.pointer}/pattern")
        (losses if isinstance(regex, Finding) else regexes).append(regex)  # type: ignore[arg-type]
    name = schema.get("format")
    if isinstance(name, str) and (known := format_regex(name)) is not None:
        regexes.append(known)
        if name in INEXACT:
            losses.append(Finding(node.pointer, "format", INEXACT[name]))
    if node.draft.is_reference_alone:  # up to draft 7
        if schema.get("contentEncoding") == "base64":
            regexes.append(parse_search(_BASE64))
        if schema.get("contentMediaType") == "application/json":
            losses.append(Finding(node.pointer, "contentMediaType", "the JSON inside is not held"))
    return String(low, high, tuple(regexes), None, frozenset(losses))


def _whole(value: Any) -> int | None:
    """An upper bound; None where there is none, or none that a text could reach."""
    return None if value is None or value >= _MAX_COUNT else int(value)


def _least(node: Node, keyword: str) -> int:
    """A lower bound; GrammarError for one that no text could reach."""
    value = int(node.keywords().get(keyword, 0))
    if value >= _MAX_COUNT:
        raise GrammarError("no text is as long as that", pointer=f"{node.pointer}/{keyword}")
    return value


# Arrays


def item_goals(node: Node, claims: Claims) -> tuple[tuple[Goal, ...], Goal]:
    """The goals of the first items, and of those behind them."""
    schema = node.keywords()
    if isinstance(schema.get("items"), list):
        keyword, rest = "items", goal_of(node, "additionalItems", claims)
    else:
        keyword, rest = "prefixItems", goal_of(node, "items", claims)
    prefix = tuple(
        claims.goal(node.below(f"{keyword}/{i}", part))
        for i, part in enumerate(schema.get(keyword, ()))
    )
    if node.draft.has_item_lists and keyword == "prefixItems":  # `items` is of all of them
        prefix = tuple(both(goal, rest) for goal in prefix)
    return prefix, rest


def contains_counts(node: Node) -> tuple[int, int | None]:
    """How many items must and may meet `contains`."""
    schema = node.keywords() if node.draft.has_contains_counts else {}
    return int(schema.get("minContains", 1)), _whole(schema.get("maxContains"))


def goal_of(node: Node, keyword: str, claims: Claims, holds: bool = True) -> Goal:
    """The goal of meeting, or breaking, the subschema under a keyword; absent, it is `true`."""
    schema = node.keywords()
    if keyword not in schema:
        return ANYTHING if holds else NOTHING
    return claims.goal(node.below(keyword, schema[keyword]), holds)


def _array(node: Node, claims: Claims) -> Array | None:
    schema = node.keywords()
    prefix, rest = item_goals(node, claims)
    contains: tuple[Contains, ...] = ()
    if "contains" in schema:
        low, high = contains_counts(node)
        contains = (Contains(goal_of(node, "contains", claims), low, high, node.pointer),)
    # `additionalItems` only says something behind a list
    is_all = ("additionalItems" if isinstance(schema.get("items"), list) else "items") in schema
    return bounded_array(
        Array(
            prefix,
            rest,
            _least(node, "minItems"),
            _whole(schema.get("maxItems")),
            contains,
            (node.pointer,) if schema.get("uniqueItems") is True else (),
            None if is_all else len(prefix),
        )
    )


# Objects


def _object(node: Node, claims: Claims) -> Object | None:
    schema = node.keywords()
    layer, losses = _layer(node, claims)
    members: dict[str, Member] = {}
    required = set(schema.get("required", ()))
    for name, part in schema.get("properties", {}).items():
        goal = claims.goal(node.below(f"properties/{escape(name)}", part))
        goal = both(goal, Layer(layer.patterns).goal_for(name))
        members[name] = Member(goal, name in required)
    for name in schema.get("required", ()):
        if name not in members:
            members[name] = Member(layer.goal_for(name), True, bool(schema.get("properties")))
    if any(member.goal is None and member.is_required for member in members.values()):
        return None
    low, high = _least(node, "minProperties"), _whole(schema.get("maxProperties"))
    if high is not None and low > high:
        return None
    evaluated = Evaluated(
        frozenset(schema.get("properties", ())),
        tuple(regex for regex, _ in layer.patterns),
        "additionalProperties" in schema,
    )
    is_plain = layer == Layer(pointer=node.pointer) and not members
    return Object(members, () if is_plain else (layer,), low, high, evaluated, losses)


def _layer(node: Node, claims: Claims) -> tuple[Layer, Losses]:
    schema = node.keywords()
    patterns: list[tuple[Regex, Goal]] = []
    losses: list[Finding] = []
    for pattern, part in schema.get("patternProperties", {}).items():
        pointer = f"{node.pointer}/patternProperties"
        regex = pattern_regex(pattern, pointer)
        if isinstance(regex, Finding):
            losses.append(regex)
            continue
        goal = claims.goal(node.below(f"patternProperties/{escape(pattern)}", part))
        patterns.append((regex, goal))
    rest = goal_of(node, "additionalProperties", claims)
    if losses and rest != ANYTHING:
        # a key of a pattern that is not held looks like any other key
        rest = ANYTHING
        losses.append(Finding(node.pointer, "additionalProperties", "beside such a pattern"))
    names = goal_of(node, "propertyNames", claims)
    is_silent = "additionalProperties" not in schema
    declares = "properties" in schema
    layer = Layer(tuple(patterns), rest, names, is_silent, declares, node.pointer)
    return layer, frozenset(losses)
