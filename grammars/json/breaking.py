"""What breaks a subschema: the opposite of each keyword that combines others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from structspec.constraint import escape
from structspec.grammars.base import Finding
from structspec.grammars.json.broken import broken_shapes, with_keys, without
from structspec.grammars.json.intersection import meet_all
from structspec.grammars.json.meant import stated
from structspec.grammars.json.meeting import DEPENDENT, is_only_reference, reference
from structspec.grammars.json.own import other_types
from structspec.grammars.json.shapes import (
    ANY_SHAPES,
    Array,
    Object,
    Shape,
    distinct,
    widened,
)
from structspec.grammars.json.unevaluated import UNHELD
from structspec.grammars.json.values import other_shapes
from structspec.grammars.schema_nodes import Node, types_of

if TYPE_CHECKING:
    from structspec.grammars.json.expand import Expander

Shapes = tuple[Shape, ...]


def breaking(expander: Expander, node: Node) -> Shapes:
    """The shapes of all values that break a subschema."""
    schema = node.keywords()
    if is_only_reference(node):
        return reference(expander, node, False)
    types = types_of(schema)
    shapes: list[Shape] = [] if types is None else list(other_types(types))
    own = tuple(broken_shapes(node, expander))
    shapes += stated(own) if expander.closed else own
    for keyword in schema:
        if keyword in _BROKEN:
            shapes += _BROKEN[keyword](expander, node)
        elif keyword in DEPENDENT:
            shapes += not_dependent(expander, node, keyword)
        elif keyword in _UNHELD:
            finding = Finding(node.pointer, keyword, "its opposite is not part of the mask")
            shapes += widened(_UNHELD[keyword], finding)
    return distinct(shapes)


def not_all_of(expander: Expander, node: Node) -> Shapes:
    return expander.either(expander.parts(node, "allOf", False))


def not_any_of(expander: Expander, node: Node) -> Shapes:
    return expander.every(expander.parts(node, "anyOf", False), node, "anyOf")


def not_one_of(expander: Expander, node: Node) -> Shapes:
    shapes = expander.every(expander.parts(node, "oneOf", False), node, "oneOf")
    lists = [expander.of(goal) for goal in expander.parts(node, "oneOf")]
    pairs = [
        expander.narrow(lists[i], lists[j], node, "oneOf")
        for i in range(len(lists))
        for j in range(i)
    ]
    return distinct([*shapes, *(shape for pair in pairs for shape in pair)])


def not_not(expander: Expander, node: Node) -> Shapes:
    return expander.of(expander.goal(node.below("not", node.keywords()["not"])))


def not_if(expander: Expander, node: Node) -> Shapes:
    schema = node.keywords()
    condition = node.below("if", schema["if"])
    shapes: list[Shape] = []
    for holds, keyword in ((True, "then"), (False, "else")):
        if keyword in schema:
            broken = expander.goal(node.below(keyword, schema[keyword]), False)
            case = expander.of(expander.goal(condition, holds))
            shapes += expander.narrow(case, expander.of(broken), node, keyword)
    return distinct(shapes)


def not_enum(expander: Expander, node: Node) -> Shapes:
    return no_values(expander, node, node.keywords()["enum"], "enum")


def not_const(expander: Expander, node: Node) -> Shapes:
    return no_values(expander, node, [node.keywords()["const"]], "const")


def no_values(expander: Expander, node: Node, values: list[Any], keyword: str) -> Shapes:
    shapes = other_shapes(values)
    for goal in expander.containers(node, values, keyword, holds=False):
        shapes = expander.narrow(shapes, expander.of(goal), node, keyword)
    return shapes


def not_dependent(expander: Expander, node: Node, keyword: str) -> Shapes:
    shapes: list[Shape] = []
    for name, demand in node.keywords()[keyword].items():
        if isinstance(demand, list):
            missing: Shapes = tuple(without(other) for other in demand)
        else:
            part = node.below(f"{keyword}/{escape(name)}", demand)
            missing = expander.of(expander.goal(part, False))
        shapes += meet_all((with_keys((name,)),), missing)
    return tuple(shapes)


# what may break keywords of which no more is told
_UNHELD: dict[str, Shapes] = {
    **dict.fromkeys(UNHELD, ANY_SHAPES),
    "unevaluatedProperties": (Object(min_members=1),),
    "unevaluatedItems": (Array(min_items=1),),
}
_BROKEN: dict[str, Callable[[Expander, Node], Shapes]] = {
    "$ref": lambda expander, node: reference(expander, node, False),
    "allOf": not_all_of,
    "anyOf": not_any_of,
    "oneOf": not_one_of,
    "not": not_not,
    "if": not_if,
    "enum": not_enum,
    "const": not_const,
}
