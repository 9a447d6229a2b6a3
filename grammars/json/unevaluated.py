"""`unevaluatedProperties` and `unevaluatedItems`: what nothing beside them has described."""

from __future__ import annotations

from dataclasses import replace

from structspec.grammars.base import Finding
from structspec.grammars.json.intersection import meet_all
from structspec.grammars.json.own import Claims
from structspec.grammars.json.shapes import (
    ANYTHING,
    Array,
    Evaluated,
    Goal,
    Layer,
    Object,
    Shape,
    distinct,
    widened,
)
from structspec.grammars.regexes.syntax import alternatives
from structspec.grammars.regexes.syntax import text as text_regex
from structspec.grammars.schema_nodes import Node

UNHELD = ("$dynamicRef", "$recursiveRef")  # references that are left to validation


def bind_unevaluated(node: Node, shapes: tuple[Shape, ...], claims: Claims) -> tuple[Shape, ...]:
    """The shapes of a subschema with the rest of their keys and items bound."""
    for keyword, bind in (("unevaluatedProperties", _bind_keys), ("unevaluatedItems", _bind_items)):
        if keyword in node.keywords():
            goal = claims.goal(node.below(keyword, node.keywords()[keyword]))
            bound = [part for shape in shapes for part in bind(node, shape, goal)]
            shapes = tuple(_doubtful(shape, node, keyword) for shape in distinct(bound))
    return shapes


def _doubtful(shape: Shape, node: Node, keyword: str) -> Shape:
    """The shape, with a loss where a reference that is not followed may have described parts."""
    if not any(finding.keyword in UNHELD for finding in shape.losses):
        return shape
    finding = Finding(node.pointer, keyword, "a dynamic reference may describe some of them")
    return widened((shape,), finding)[0]


def unannotated(shapes: tuple[Shape, ...]) -> tuple[Shape, ...]:
    """The same shapes with nothing evaluated: `not` tells nobody what it has looked at."""
    return _annotated(shapes, Evaluated(), 0)


def all_evaluated(shapes: tuple[Shape, ...]) -> tuple[Shape, ...]:
    """The same shapes with everything evaluated, as far as anybody knows."""
    return _annotated(shapes, Evaluated(is_all=True), None)


def _annotated(
    shapes: tuple[Shape, ...], evaluated: Evaluated, num_evaluated: int | None
) -> tuple[Shape, ...]:
    found: list[Shape] = []
    for shape in shapes:
        if isinstance(shape, Object):
            found.append(replace(shape, evaluated=evaluated))
        elif isinstance(shape, Array):
            found.append(replace(shape, num_evaluated=num_evaluated))
        else:
            found.append(shape)
    return tuple(found)


def _bind_keys(node: Node, shape: Shape, goal: Goal) -> tuple[Shape, ...]:
    if not isinstance(shape, Object) or shape.evaluated.is_all:
        return (shape,)
    seen = shape.evaluated
    names = alternatives(*map(text_regex, sorted(seen.names)))
    patterns = tuple((regex, ANYTHING) for regex in (names, *seen.patterns))
    layer = Layer(patterns, goal, is_silent=False)
    return meet_all((shape,), (Object({}, (layer,), evaluated=Evaluated(is_all=True)),))


def _bind_items(node: Node, shape: Shape, goal: Goal) -> tuple[Shape, ...]:
    if not isinstance(shape, Array) or shape.num_evaluated is None:
        return (shape,)
    if shape.contains:
        return widened((shape,), Finding(node.pointer, "unevaluatedItems", "not beside contains"))
    bound = Array((ANYTHING,) * shape.num_evaluated, goal, num_evaluated=None)
    return meet_all((shape,), (bound,))
