"""What meets a subschema: each keyword that combines others, as alternatives of shapes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import TYPE_CHECKING, Any

from structspec.constraint import escape
from structspec.grammars.base import Finding
from structspec.grammars.json.broken import with_keys, without
from structspec.grammars.json.intersection import meet_all
from structspec.grammars.json.meant import untold
from structspec.grammars.json.own import OWN_KEYWORDS, own_shapes
from structspec.grammars.json.shapes import (
    ANY_SHAPES,
    Goal,
    Shape,
    distinct,
    widened,
)
from structspec.grammars.json.unevaluated import (
    UNHELD,
    all_evaluated,
    bind_unevaluated,
    unannotated,
)
from structspec.grammars.json.values import scalar_shapes
from structspec.grammars.schema_nodes import Node

if TYPE_CHECKING:
    from structspec.grammars.json.expand import Expander

Shapes = tuple[Shape, ...]

DEPENDENT = ("dependentRequired", "dependentSchemas", "dependencies")
_MAX_EXCLUSIVE = 64  # alternatives of a oneOf whose parts exclude each other
_MAX_PAIRS = 1024  # of alternatives that are looked at to see whether they are apart
_MAX_EVALUATED = 4  # parts of anyOf that are told apart where it matters which have held


def meeting(expander: Expander, node: Node) -> Shapes:
    """The shapes of all values that meet a subschema."""
    schema = node.keywords()
    if is_only_reference(node):
        return reference(expander, node)
    shapes: Shapes = ANY_SHAPES
    is_own_done = False
    for keyword in schema:
        if keyword in OWN_KEYWORDS and not is_own_done:
            # all at once, where `properties` stands: that gives keys their order
            if keyword != "properties" and "properties" in schema:
                continue
            is_own_done = True
            shapes = expander.narrow(shapes, own_shapes(node, expander), node, keyword)
        elif keyword == "allOf":  # one after the other: most combinations contradict what is known
            shapes = expander.every(expander.parts(node, keyword), node, keyword, shapes)
        elif keyword in _COMBINED:
            shapes = expander.narrow(shapes, _COMBINED[keyword](expander, node), node, keyword)
        elif keyword in UNHELD:
            finding = Finding(node.pointer, keyword, "not part of the mask")
            shapes = all_evaluated(widened(shapes, finding))
    for keyword in DEPENDENT:
        if keyword in schema:
            shapes = expander.narrow(shapes, dependent(expander, node, keyword), node, keyword)
    return bind_unevaluated(node, shapes, expander)


def is_only_reference(node: Node) -> bool:
    """Before 2019, `$ref` stood alone: what is beside it says nothing."""
    return "$ref" in node.keywords() and node.draft.is_reference_alone


def reference(expander: Expander, node: Node, holds: bool = True) -> Shapes:
    """What meets, or breaks, the target of `$ref`."""
    target = expander.document.target(node)
    assert target is not None
    return expander.of(expander.goal(target, holds))


def any_of(expander: Expander, node: Node) -> Shapes:
    goals = expander.parts(node, "anyOf")
    if not expander.has_unevaluated or len(goals) > _MAX_EVALUATED:
        return expander.either(goals)
    # what several parts describe at once is evaluated by all of them
    subsets = (s for size in range(len(goals), 0, -1) for s in combinations(goals, size))
    return distinct([s for subset in subsets for s in expander.every(subset, node, "anyOf")])


def one_of(expander: Expander, node: Node) -> Shapes:
    goals = expander.parts(node, "oneOf")
    lists = [expander.of(goal) for goal in goals]
    found: list[Shape] = []
    is_apart = True
    for index, shapes in enumerate(lists):
        others = [other for other in range(len(goals)) if other != index]
        for shape in shapes:
            clashes = [o for o in others if not are_apart(expander, (shape,), lists[o])]
            is_apart = is_apart and not clashes
            alone: Shapes = (shape,)
            for other in clashes:
                alone = excluding(expander, alone, goals[other], node)
            found += alone
    expander.note(
        node,
        "oneOf became anyOf: no value meets two of its parts"
        if is_apart
        else "each part of oneOf now excludes the others",
    )
    return bounded(expander, distinct(found), lists, node)


def bounded(expander: Expander, shapes: Shapes, lists: list[Shapes], node: Node) -> Shapes:
    """The shapes, or what they were made from with a loss if there are too many."""
    if len(shapes) <= _MAX_EXCLUSIVE:
        return shapes
    every = distinct([shape for part in lists for shape in part])
    if len(every) >= len(shapes):
        return shapes
    return widened(every, Finding(node.pointer, "oneOf", "too many combinations for the mask"))


def excluding(expander: Expander, shapes: Shapes, goal: Goal, node: Node) -> Shapes:
    """The shapes that break a goal."""
    if not goal:
        return shapes if goal is None else ()
    ((index, holds),) = goal
    met = expander.narrow(shapes, expander.claim_shapes((index, not holds)), node, "oneOf")
    return tuple(shape for shape in met if not expander.is_empty(shape))


def are_apart(expander: Expander, left: Shapes, right: Shapes) -> bool:
    if len(left) * len(right) > _MAX_PAIRS:
        return False
    return all(expander.is_empty(shape) for shape in meet_all(left, right))


def not_(expander: Expander, node: Node) -> Shapes:
    shapes = expander.of(expander.goal(node.below("not", node.keywords()["not"]), False))
    return unannotated(shapes)


def if_(expander: Expander, node: Node) -> Shapes:
    schema = node.keywords()
    if not {"then", "else"} & schema.keys() and not expander.has_unevaluated:
        return ANY_SHAPES
    condition = node.below("if", schema["if"])
    branches: list[Shape] = []
    for holds, keyword in ((True, "then"), (False, "else")):
        shapes = untold(expander.of(expander.goal(condition, holds)))
        if keyword in schema:
            branch = expander.goal(node.below(keyword, schema[keyword]))
            shapes = expander.narrow(shapes, expander.of(branch), node, keyword)
        branches += shapes
    expander.note(node, "if became a union of both cases")
    return distinct(branches)


def enum(expander: Expander, node: Node) -> Shapes:
    return values(expander, node, node.keywords()["enum"], "enum")


def const(expander: Expander, node: Node) -> Shapes:
    return values(expander, node, [node.keywords()["const"]], "const")


def values(expander: Expander, node: Node, values: list[Any], keyword: str) -> Shapes:
    shapes = list(scalar_shapes(values))
    for goal in expander.containers(node, values, keyword):
        shapes += expander.of(goal)
    return unannotated(tuple(shapes))  # a value describes no part of itself


def dependent(expander: Expander, node: Node, keyword: str) -> Shapes:
    """`dependentRequired`, `dependentSchemas` and their older form, `dependencies`."""
    shapes: Shapes = ANY_SHAPES
    for name, wanted in node.keywords()[keyword].items():
        cases = demand(expander, node, keyword, name, wanted)
        shapes = expander.narrow(shapes, cases, node, keyword)
        expander.note(node, f"{keyword} of {name!r} became a union: without the key, or with both")
    return shapes


def demand(expander: Expander, node: Node, keyword: str, name: str, wanted: Any) -> Shapes:
    """Either the key is absent or what depends on it holds."""
    if isinstance(wanted, list):
        present: Shapes = (with_keys((name, *wanted)),)
    else:
        goal = expander.goal(node.below(f"{keyword}/{escape(name)}", wanted))
        present = meet_all((with_keys((name,)),), expander.of(goal))
    return (*ANY_SHAPES[:-1], without(name), *present)


_COMBINED: dict[str, Callable[[Expander, Node], Shapes]] = {
    "$ref": reference,
    "anyOf": any_of,
    "oneOf": one_of,
    "not": not_,
    "if": if_,
    "enum": enum,
    "const": const,
}
