"""From goals to shapes: everything that combines subschemas is worked out here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from structspec.grammars.base import Finding
from structspec.grammars.json.broken import broken_shapes, with_keys, without
from structspec.grammars.json.own import OWN_KEYWORDS, own_shapes
from structspec.grammars.json.shapes import (
    ANY_SHAPES,
    ANYTHING,
    NOTHING,
    Array,
    Claim,
    Goal,
    Object,
    Shape,
    distinct,
    meet_all,
    widened,
)
from structspec.grammars.json.unevaluated import bind_unevaluated
from structspec.grammars.json.values import other_shapes, scalar_shapes, schema_of
from structspec.grammars.json_schema import Document, Node, escape

Shapes = tuple[Shape, ...]

_MAX_ALTERNATIVES = 64  # of one goal: beyond, a combination is widened
_MAX_PAIRS = 1024  # meets of two lists of alternatives
_MAX_PAIRS_IN_ALL = 6_000  # of one schema: a pair of large objects takes a tenth of a millisecond
_UNHELD = ("$dynamicRef", "$recursiveRef")


@dataclass(slots=True)
class Expander:
    """The subschemas of one document, and the shapes of goals over them, each worked out once."""

    document: Document
    changes: dict[str, None] = field(default_factory=dict)  # rewrites, in order
    _nodes: list[Node] = field(default_factory=list)
    _index: dict[int, int] = field(default_factory=dict)
    _claims: dict[Claim, Shapes] = field(default_factory=dict)
    _goals: dict[Goal, Shapes] = field(default_factory=dict)
    _num_pairs: int = 0
    _open_goals: set[Goal] = field(default_factory=set)
    # claims being worked out on one value, and those met again meanwhile: they go in circles
    _open_claims: set[Claim] = field(default_factory=set)
    _circles: set[Claim] = field(default_factory=set)
    _made: list[Any] = field(default_factory=list)  # keeps made subschemas, so ids stay theirs

    def goal(self, node: Node, holds: bool = True) -> Goal:
        """The goal of meeting, or breaking, one subschema."""
        schema = node.schema
        if isinstance(schema, bool) or not schema:
            return ANYTHING if (schema is not False) == holds else NOTHING
        index = self._index.get(id(schema))
        if index is None:
            index = self._index[id(schema)] = len(self._nodes)
            self._nodes.append(node)
        return ((index, holds),)

    def node_of(self, claim: Claim) -> Node:
        """The subschema that a claim is about."""
        return self._nodes[claim[0]]

    def shapes(self, goal: Goal) -> Shapes:
        """The alternatives of a goal; none where nothing meets it, as far as can be told."""
        if goal is None:
            return ()
        if not goal:
            return ANY_SHAPES
        known = self._goals.get(goal)
        if known is not None:
            return known
        if goal in self._open_goals:  # asked while it is worked out: whether it is empty
            return ANY_SHAPES
        self._open_goals.add(goal)
        outer = self._open_claims, self._circles
        self._open_claims, self._circles = set(), set()  # a part is another value
        shapes = self._claim_shapes(goal[0])
        for claim in goal[1:]:
            shapes = self._narrow(shapes, self._claim_shapes(claim), self.node_of(claim), "schema")
        shapes = tuple(shape for shape in shapes if not self._is_empty(shape))
        self._open_claims, self._circles = outer
        self._open_goals.discard(goal)
        self._goals[goal] = shapes
        return shapes

    def _is_empty(self, shape: Shape) -> bool:
        """Whether a part that must be there can be shown to have no value."""
        if isinstance(shape, Object):
            return any(
                member.is_required and not self.shapes(member.goal)
                for member in shape.members.values()
            )
        if isinstance(shape, Array):
            goals = {shape.goal_at(i) for i in range(min(shape.min_items, len(shape.prefix) + 1))}
            return any(not self.shapes(goal) for goal in goals) or any(
                c.minimum and not self.shapes(c.goal) for c in shape.contains
            )
        return False

    def _narrow(self, left: Shapes, right: Shapes, node: Node, keyword: str) -> Shapes:
        """What belongs to both lists; where that is too much to work out, the left with a loss."""
        if right is ANY_SHAPES:
            return left
        if left is ANY_SHAPES:
            return right
        num_pairs = len(left) * len(right)
        self._num_pairs += num_pairs
        if num_pairs <= _MAX_PAIRS and self._num_pairs <= _MAX_PAIRS_IN_ALL:
            met = meet_all(left, right)
            if len(met) <= _MAX_ALTERNATIVES or len(met) <= len(left):
                return met
        return widened(left, Finding(node.pointer, keyword, "too many combinations for the mask"))

    def _claim_shapes(self, claim: Claim) -> Shapes:
        known = self._claims.get(claim)
        if known is not None:
            return known
        if claim in self._open_claims:
            self._circles.add(claim)
            return ()  # a value would have to meet itself first: the least solution is none
        self._open_claims.add(claim)
        node, holds = self.node_of(claim), claim[1]
        shapes = self._holding(node) if holds else self._breaking(node)
        self._open_claims.discard(claim)
        self._circles.discard(claim)
        if not self._circles:  # else it holds only inside the circle
            self._claims[claim] = shapes
        return shapes

    # Meeting a subschema

    def _holding(self, node: Node) -> Shapes:
        schema = node.keywords()
        if self._is_only_reference(node):
            return self._reference(node)
        shapes: Shapes = ANY_SHAPES
        is_own_done = False
        for keyword in schema:
            if keyword in OWN_KEYWORDS and not is_own_done:
                # all at once, where `properties` stands: that gives keys their order
                if keyword != "properties" and "properties" in schema:
                    continue
                shapes, is_own_done = (
                    self._narrow(shapes, own_shapes(node, self), node, keyword),
                    True,
                )
            elif keyword in _COMBINED:
                shapes = self._narrow(shapes, _COMBINED[keyword](self, node), node, keyword)
            elif keyword in _UNHELD:
                shapes = widened(shapes, Finding(node.pointer, keyword, "not part of the mask"))
        for keyword in _DEPENDENT:
            if keyword in schema:
                shapes = self._narrow(shapes, self._dependent(node, keyword), node, keyword)
        return bind_unevaluated(node, shapes, self)

    def _is_only_reference(self, node: Node) -> bool:
        """Before 2019, `$ref` stood alone: what is beside it says nothing."""
        return "$ref" in node.keywords() and self.document.is_reference_alone

    def _reference(self, node: Node, holds: bool = True) -> Shapes:
        target = self.document.target(node)
        assert target is not None
        return self._of(self.goal(target, holds))

    def _of(self, goal: Goal) -> Shapes:
        """Shapes of one claim, in place: of the same value, so inside what is in progress."""
        if not goal:
            return () if goal is None else ANY_SHAPES
        (claim,) = goal
        return self._claim_shapes(claim)

    def _parts(self, node: Node, keyword: str, holds: bool = True) -> list[Goal]:
        value = node.keywords()[keyword]
        return [
            self.goal(node.below(f"{keyword}/{index}", part), holds)
            for index, part in enumerate(value)
        ]

    def _all_of(self, node: Node) -> Shapes:
        return self._all(self._parts(node, "allOf"), node, "allOf")

    def _all(self, goals: Iterable[Goal], node: Node, keyword: str) -> Shapes:
        shapes: Shapes = ANY_SHAPES
        for goal in goals:
            shapes = self._narrow(shapes, self._of(goal), node, keyword)
        return shapes

    def _any_of(self, node: Node) -> Shapes:
        return self._any(self._parts(node, "anyOf"))

    def _any(self, goals: Iterable[Goal]) -> Shapes:
        lists = [self._of(goal) for goal in goals]
        if any(shapes is ANY_SHAPES for shapes in lists):
            return ANY_SHAPES
        return distinct([shape for shapes in lists for shape in shapes])

    def _one_of(self, node: Node) -> Shapes:
        goals = self._parts(node, "oneOf")
        lists = [self._of(goal) for goal in goals]
        found: list[Shape] = []
        is_apart = True
        for index, shapes in enumerate(lists):
            others = [other for other in range(len(goals)) if other != index]
            for shape in shapes:
                clashes = [o for o in others if not self._are_apart((shape,), lists[o])]
                is_apart = is_apart and not clashes
                alone: Shapes = (shape,)
                for other in clashes:
                    alone = self._without(alone, goals[other], node)
                found += alone
        self._note(
            node,
            "oneOf became anyOf: no value meets two of its parts"
            if is_apart
            else "each part of oneOf now excludes the others",
        )
        return self._bounded(distinct(found), lists, node)

    def _bounded(self, shapes: Shapes, lists: list[Shapes], node: Node) -> Shapes:
        """The shapes, or what they were made from with a loss if there are too many."""
        if len(shapes) <= _MAX_ALTERNATIVES:
            return shapes
        every = distinct([shape for part in lists for shape in part])
        if len(every) >= len(shapes):
            return shapes
        return widened(every, Finding(node.pointer, "oneOf", "too many combinations for the mask"))

    def _without(self, shapes: Shapes, goal: Goal, node: Node) -> Shapes:
        """The shapes that break a goal."""
        if not goal:
            return shapes if goal is None else ()
        ((index, holds),) = goal
        met = self._narrow(shapes, self._claim_shapes((index, not holds)), node, "oneOf")
        return tuple(shape for shape in met if not self._is_empty(shape))

    def _are_apart(self, left: Shapes, right: Shapes) -> bool:
        if len(left) * len(right) > _MAX_PAIRS:
            return False
        return all(self._is_empty(shape) for shape in meet_all(left, right))

    def _not(self, node: Node) -> Shapes:
        return self._of(self.goal(node.below("not", node.keywords()["not"]), False))

    def _if(self, node: Node) -> Shapes:
        schema = node.keywords()
        if not {"then", "else"} & schema.keys():
            return ANY_SHAPES
        condition = node.below("if", schema["if"])
        branches: list[Shape] = []
        for holds, keyword in ((True, "then"), (False, "else")):
            shapes = self._of(self.goal(condition, holds))
            if keyword in schema:
                branch = self.goal(node.below(keyword, schema[keyword]))
                shapes = self._narrow(shapes, self._of(branch), node, keyword)
            branches += shapes
        self._note(node, "if became a union of both cases")
        return distinct(branches)

    def _enum(self, node: Node) -> Shapes:
        return self._values(node, node.keywords()["enum"], "enum")

    def _const(self, node: Node) -> Shapes:
        return self._values(node, [node.keywords()["const"]], "const")

    def _values(self, node: Node, values: list[Any], keyword: str) -> Shapes:
        shapes = list(scalar_shapes(values))
        for goal in self._containers(node, values, keyword):
            shapes += self._of(goal)
        return tuple(shapes)

    def _containers(
        self, node: Node, values: list[Any], keyword: str, holds: bool = True
    ) -> list[Goal]:
        """Goals of the arrays and objects in a list of values: subschemas are made for them."""
        made = [schema_of(value) for value in values if isinstance(value, (dict, list))]
        self._made += made
        return [self.goal(Node(f"{node.pointer}/{keyword}", schema), holds) for schema in made]

    def _dependent(self, node: Node, keyword: str) -> Shapes:
        """`dependentRequired`, `dependentSchemas` and their older form, `dependencies`."""
        shapes: Shapes = ANY_SHAPES
        for name, demand in node.keywords()[keyword].items():
            shapes = self._narrow(shapes, self._demand(node, keyword, name, demand), node, keyword)
            self._note(node, f"{keyword} of {name!r} became a union: without the key, or with both")
        return shapes

    def _demand(self, node: Node, keyword: str, name: str, demand: Any) -> Shapes:
        """Either the key is absent or what depends on it holds."""
        if isinstance(demand, list):
            present: Shapes = (with_keys((name, *demand)),)
        else:
            goal = self.goal(node.below(f"{keyword}/{escape(name)}", demand))
            present = meet_all((with_keys((name,)),), self._of(goal))
        return (*ANY_SHAPES[:-1], without(name), *present)

    # Breaking a subschema

    def _breaking(self, node: Node) -> Shapes:
        schema = node.keywords()
        if self._is_only_reference(node):
            return self._reference(node, False)
        shapes: list[Shape] = list(broken_shapes(node, self))
        for keyword in schema:
            if keyword in _BROKEN:
                shapes += _BROKEN[keyword](self, node)
            elif keyword in _DEPENDENT:
                shapes += self._not_dependent(node, keyword)
            elif keyword in (*_UNHELD, "unevaluatedProperties", "unevaluatedItems"):
                finding = Finding(node.pointer, keyword, "its opposite is not part of the mask")
                shapes += widened(ANY_SHAPES, finding)
        return distinct(shapes)

    def _not_all_of(self, node: Node) -> Shapes:
        return self._any(self._parts(node, "allOf", False))

    def _not_any_of(self, node: Node) -> Shapes:
        return self._all(self._parts(node, "anyOf", False), node, "anyOf")

    def _not_one_of(self, node: Node) -> Shapes:
        shapes = self._all(self._parts(node, "oneOf", False), node, "oneOf")
        lists = [self._of(goal) for goal in self._parts(node, "oneOf")]
        pairs = [
            self._narrow(lists[i], lists[j], node, "oneOf")
            for i in range(len(lists))
            for j in range(i)
        ]
        return distinct([*shapes, *(shape for pair in pairs for shape in pair)])

    def _not_not(self, node: Node) -> Shapes:
        return self._of(self.goal(node.below("not", node.keywords()["not"])))

    def _not_if(self, node: Node) -> Shapes:
        schema = node.keywords()
        condition = node.below("if", schema["if"])
        shapes: list[Shape] = []
        for holds, keyword in ((True, "then"), (False, "else")):
            if keyword in schema:
                broken = self.goal(node.below(keyword, schema[keyword]), False)
                case = self._of(self.goal(condition, holds))
                shapes += self._narrow(case, self._of(broken), node, keyword)
        return distinct(shapes)

    def _not_enum(self, node: Node) -> Shapes:
        return self._no_values(node, node.keywords()["enum"], "enum")

    def _not_const(self, node: Node) -> Shapes:
        return self._no_values(node, [node.keywords()["const"]], "const")

    def _no_values(self, node: Node, values: list[Any], keyword: str) -> Shapes:
        shapes = other_shapes(values)
        for goal in self._containers(node, values, keyword, holds=False):
            shapes = self._narrow(shapes, self._of(goal), node, keyword)
        return shapes

    def _not_dependent(self, node: Node, keyword: str) -> Shapes:
        shapes: list[Shape] = []
        for name, demand in node.keywords()[keyword].items():
            if isinstance(demand, list):
                missing: Shapes = tuple(without(other) for other in demand)
            else:
                part = node.below(f"{keyword}/{escape(name)}", demand)
                missing = self._of(self.goal(part, False))
            shapes += meet_all((with_keys((name,)),), missing)
        return tuple(shapes)

    def _note(self, node: Node, text: str) -> None:
        self.changes[f"{node.pointer}: {text}"] = None


_COMBINED: dict[str, Callable[[Expander, Node], Shapes]] = {
    "$ref": Expander._reference,
    "allOf": Expander._all_of,
    "anyOf": Expander._any_of,
    "oneOf": Expander._one_of,
    "not": Expander._not,
    "if": Expander._if,
    "enum": Expander._enum,
    "const": Expander._const,
}
_DEPENDENT = ("dependentRequired", "dependentSchemas", "dependencies")
_BROKEN: dict[str, Callable[[Expander, Node], Shapes]] = {
    "$ref": lambda expander, node: expander._reference(node, False),
    "allOf": Expander._not_all_of,
    "anyOf": Expander._not_any_of,
    "oneOf": Expander._not_one_of,
    "not": Expander._not_not,
    "if": Expander._not_if,
    "enum": Expander._not_enum,
    "const": Expander._not_const,
}
