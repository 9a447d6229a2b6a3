"""From goals to shapes: claims are worked out once, combined, and what is empty left out.

What each keyword does is in `meeting.py` and, for the opposite, in `breaking.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from structspec.grammars.base import Finding
from structspec.grammars.json.breaking import breaking
from structspec.grammars.json.intersection import meet_all
from structspec.grammars.json.meant import is_meant, marked, types_meant, untold
from structspec.grammars.json.meeting import meeting
from structspec.grammars.json.plain import keep, plain_key, recall
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
    widened,
)
from structspec.grammars.json.values import schema_of
from structspec.grammars.json_schema import Document
from structspec.grammars.schema_nodes import Node

Shapes = tuple[Shape, ...]

_MAX_ALTERNATIVES = 64  # of one goal: beyond, a combination is widened
_MANY = 4  # alternatives: from here on those without a value are looked for at once
_MAX_PAIRS = 1024  # meets of two lists of alternatives
_MAX_PAIRS_IN_ALL = 6_000  # of one schema: a pair of large objects takes a tenth of a millisecond


@dataclass(slots=True)
class Expander:
    """The subschemas of one document, and the shapes of goals over them, each worked out once."""

    document: Document
    closed: bool = False
    has_unevaluated: bool = False  # then it matters which parts have described a value
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
        shapes = self.claim_shapes(goal[0])
        for claim in goal[1:]:
            shapes = self.narrow(shapes, self.claim_shapes(claim), self.node_of(claim), "schema")
        shapes = tuple(shape for shape in shapes if not self.is_empty(shape))
        self._open_claims, self._circles = outer
        self._open_goals.discard(goal)
        self._goals[goal] = shapes
        return shapes

    def typed(self, goal: Goal) -> Shapes:
        """The alternatives of a whole value; where none has a type stated, of the types meant."""
        shapes = self.shapes(goal)
        kept = tuple(shape for shape in shapes if is_meant(shape))
        if goal and len(kept) < len(shapes):
            types = types_meant(shapes)
            self.note(self.node_of(goal[0]), f"no type is stated: {types}, as its keywords say")
        return kept

    def is_empty(self, shape: Shape) -> bool:
        """Whether a part that must be there can be shown to have no value."""
        if isinstance(shape, Object):
            return any(
                member.is_required and not self.typed(member.goal)
                for member in shape.members.values()
            )
        if isinstance(shape, Array):
            goals = {shape.goal_at(i) for i in range(min(shape.min_items, len(shape.prefix) + 1))}
            return any(not self.typed(goal) for goal in goals) or any(
                c.minimum and not self.typed(c.goal) for c in shape.contains
            )
        return False

    def narrow(self, left: Shapes, right: Shapes, node: Node, keyword: str) -> Shapes:
        """What belongs to both lists; where that is too much to work out, the left with a loss."""
        if right is ANY_SHAPES:
            return left
        if left is ANY_SHAPES:
            return right
        num_pairs = len(left) * len(right)
        self._num_pairs += num_pairs - max(len(left), len(right))
        if num_pairs <= _MAX_PAIRS and self._num_pairs <= _MAX_PAIRS_IN_ALL:
            met = meet_all(left, right)
            if len(met) <= _MAX_ALTERNATIVES or len(met) <= len(left):
                return met
        return widened(left, Finding(node.pointer, keyword, "too many combinations for the mask"))

    def claim_shapes(self, claim: Claim) -> Shapes:
        """The alternatives of one claim, each worked out once."""
        known = self._claims.get(claim)
        if known is not None:
            return known
        if claim in self._open_claims:
            self._circles.add(claim)
            return ()  # a value would have to meet itself first: the least solution is none
        node, holds = self.node_of(claim), claim[1]
        key = plain_key(node.schema) if holds else None
        if key is not None and (known := recall(key, closed=self.closed)) is not None:
            self._claims[claim] = known
            return known
        self._open_claims.add(claim)
        shapes = meeting(self, node) if holds else untold(breaking(self, node))
        if self.closed and holds:
            shapes = marked(node, shapes)
        self._open_claims.discard(claim)
        self._circles.discard(claim)
        if not self._circles:  # else it holds only inside the circle
            self._claims[claim] = shapes
        if key is not None:
            keep(key, shapes, closed=self.closed)
        return shapes

    def of(self, goal: Goal) -> Shapes:
        """Shapes of one claim, in place: of the same value, so inside what is in progress."""
        if not goal:
            return () if goal is None else ANY_SHAPES
        (claim,) = goal
        return self.claim_shapes(claim)

    def parts(self, node: Node, keyword: str, holds: bool = True) -> list[Goal]:
        """The goals of meeting, or breaking, each subschema in a list."""
        value = node.keywords()[keyword]
        return [
            self.goal(node.below(f"{keyword}/{index}", part), holds)
            for index, part in enumerate(value)
        ]

    def every(
        self, goals: Iterable[Goal], node: Node, keyword: str, shapes: Shapes = ANY_SHAPES
    ) -> Shapes:
        """Which of the shapes meet all of them."""
        for goal in goals:
            shapes = self.narrow(shapes, self.of(goal), node, keyword)
            if len(shapes) > _MANY:  # of many combinations most contradict themselves
                shapes = tuple(shape for shape in shapes if not self.is_empty(shape))
        return shapes

    def either(self, goals: Iterable[Goal]) -> Shapes:
        """What meets any of them."""
        lists = [self.of(goal) for goal in goals]
        if any(shapes is ANY_SHAPES for shapes in lists):
            return ANY_SHAPES
        return distinct([shape for shapes in lists for shape in shapes])

    def containers(
        self, node: Node, values: list[Any], keyword: str, holds: bool = True
    ) -> list[Goal]:
        """Goals of the arrays and objects in a list of values: subschemas are made for them."""
        made = [schema_of(value) for value in values if isinstance(value, (dict, list))]
        self._made += made
        return [self.goal(Node(f"{node.pointer}/{keyword}", schema), holds) for schema in made]

    def note(self, node: Node, text: str) -> None:
        """Tell the report of a rewrite."""
        self.changes[f"{node.pointer}: {text}"] = None
