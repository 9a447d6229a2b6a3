"""The normal form of a JSON schema: alternatives, each of one type, over goals for their parts.

A claim says that a value must, or must not, satisfy one subschema. A goal is a conjunction of
claims; whatever combines subschemas (`allOf`, `anyOf`, `oneOf`, `not`, `if`, `$ref` ...) is worked
out when a goal is expanded into shapes, so a shape holds no combination any more:

    goal = claim & claim & ...          shapes(goal) = shape | shape | ...
    shape = null | boolean | number | string | array of goals | object of goals

There are finitely many claims in a schema, so finitely many goals: recursion ends by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction

from structspec.grammars.base import Finding
from structspec.grammars.regexes.derive import matches
from structspec.grammars.regexes.syntax import Regex

Claim = tuple[int, bool]  # which subschema, and whether it holds
Goal = tuple[Claim, ...] | None  # None: no value at all
ANYTHING: Goal = ()
NOTHING: Goal = None

Losses = frozenset[Finding]  # keywords that a shape is wider than
_NONE: Losses = frozenset()
Meant = frozenset[str] | None  # see `meant.py`
UNTOLD: frozenset[str] = frozenset()


def both(left: Goal, right: Goal) -> Goal:
    """The goal to meet both."""
    if left is None or right is None:
        return None
    if not left or not right or left is right:
        return left or right
    merged = left + tuple(claim for claim in right if claim not in left)
    return None if any((index, not holds) in merged for index, holds in merged) else merged


@dataclass(frozen=True, slots=True)
class Null:
    """null."""

    losses: Losses = _NONE
    meant: Meant = UNTOLD


@dataclass(frozen=True, slots=True)
class Boolean:
    """true, false or both."""

    values: frozenset[bool] = frozenset((True, False))
    losses: Losses = _NONE
    meant: Meant = UNTOLD


@dataclass(frozen=True, slots=True)
class Limit:
    """One end of a range of numbers; an open end does not belong to it."""

    value: Fraction
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class Number:
    """Numbers; `is_integer` None is either kind, `values` a list of all there are."""

    is_integer: bool | None = None
    lower: Limit | None = None
    upper: Limit | None = None
    multiple: Fraction | None = None
    values: tuple[Fraction, ...] | None = None
    excluded: frozenset[Fraction] = frozenset()
    losses: Losses = _NONE
    meant: Meant = UNTOLD

    def has(self, value: Fraction) -> bool:
        """Whether a number belongs to it."""
        if self.is_integer is not None and (value.denominator == 1) != self.is_integer:
            return False
        low, high = self.lower, self.upper
        if low and (value < low.value or (low.is_open and value == low.value)):
            return False
        if high and (value > high.value or (high.is_open and value == high.value)):
            return False
        if self.values is not None and value not in self.values:
            return False
        is_multiple = self.multiple is None or value % self.multiple == 0
        return is_multiple and value not in self.excluded


@dataclass(frozen=True, slots=True)
class String:
    """Strings; lengths in code points, `values` a list of all there are."""

    min_length: int = 0
    max_length: int | None = None
    regexes: tuple[Regex, ...] = ()
    values: tuple[str, ...] | None = None
    losses: Losses = _NONE
    meant: Meant = UNTOLD


@dataclass(frozen=True, slots=True)
class Contains:
    """How many items must meet a goal."""

    goal: Goal
    minimum: int
    maximum: int | None
    pointer: str = "#"


@dataclass(frozen=True, slots=True)
class Array:
    """Arrays: the first items by place, the others alike. None evaluated: every item is."""

    prefix: tuple[Goal, ...] = ()
    rest: Goal = ANYTHING
    min_items: int = 0
    max_items: int | None = None
    contains: tuple[Contains, ...] = ()
    unique: tuple[str, ...] = ()  # where `uniqueItems` says that no two may be equal
    num_evaluated: int | None = 0
    losses: Losses = _NONE
    meant: Meant = UNTOLD

    @property
    def counted(self) -> tuple[Contains, ...]:
        """The counts that say anything."""
        return tuple(c for c in self.contains if c.minimum or c.maximum is not None)

    def goal_at(self, index: int) -> Goal:
        """What the item at a place must meet."""
        return self.prefix[index] if index < len(self.prefix) else self.rest


@dataclass(frozen=True, slots=True)
class Member:
    """A key that is spelled out; goal None where it must be absent."""

    goal: Goal
    is_required: bool = False
    is_declared: bool = True  # stands beside `properties`, which gives it its place in the order
    is_foreign: bool = False  # only spoken of where a subschema is broken: a closed object has none


@dataclass(frozen=True, slots=True)
class Layer:
    """What one subschema says of keys that are not spelled out.

    `is_silent`: it says nothing of those that match no pattern, so that closing may forbid them.
    """

    patterns: tuple[tuple[Regex, Goal], ...] = ()
    rest: Goal = ANYTHING
    names: Goal = ANYTHING
    is_silent: bool = True
    declares: bool = False  # whether it has `properties`, if only an empty one
    pointer: str = "#"

    def goal_for(self, name: str) -> Goal:
        """What the value of a key must meet."""
        goals = [goal for regex, goal in self.patterns if matches(regex, name)]
        if not goals:
            return self.rest
        goal = ANYTHING
        for other in goals:
            goal = both(goal, other)
        return goal


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Which keys `unevaluatedProperties` finds evaluated."""

    names: frozenset[str] = frozenset()
    patterns: tuple[Regex, ...] = ()
    is_all: bool = False

    def __or__(self, other: Evaluated) -> Evaluated:
        return Evaluated(
            self.names | other.names,
            tuple(dict.fromkeys(self.patterns + other.patterns)),
            self.is_all or other.is_all,
        )


@dataclass(frozen=True, slots=True)
class Object:
    """Objects: keys spelled out in their order, then what layers say of all others."""

    members: dict[str, Member] = field(default_factory=dict)  # read, never changed
    layers: tuple[Layer, ...] = ()
    min_members: int = 0
    max_members: int | None = None
    evaluated: Evaluated = Evaluated()
    losses: Losses = _NONE
    meant: Meant = UNTOLD

    def __hash__(self) -> int:
        return hash((tuple(self.members.items()), self.layers, self.min_members, self.max_members))

    def goal_for(self, name: str) -> Goal:
        """What the value of a key must meet."""
        if name in self.members:
            return self.members[name].goal
        goal = ANYTHING
        for layer in self.layers:
            goal = both(goal, layer.goal_for(name))
        return goal


Shape = Null | Boolean | Number | String | Array | Object
ANY_SHAPES: tuple[Shape, ...] = (Null(), Boolean(), Number(), String(), Array(), Object())


def widened(shapes: tuple[Shape, ...], finding: Finding) -> tuple[Shape, ...]:
    """The same shapes, noted to be wider than that keyword."""
    return tuple(replace(shape, losses=shape.losses | {finding}) for shape in shapes)


def distinct(shapes: list[Shape] | tuple[Shape, ...]) -> tuple[Shape, ...]:
    """The shapes, equal ones once."""
    return tuple(dict.fromkeys(shapes))


def smaller(one: int | None, other: int | None) -> int | None:
    """The smaller of two upper bounds; None is none."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def bounded_array(array: Array) -> Array | None:
    """The array cut where no item can stand; None where it must be longer than that."""
    limit = array.max_items
    for index, goal in enumerate(array.prefix):
        if goal is None:
            limit = smaller(limit, index)
    if array.rest is None:
        limit = smaller(limit, len(array.prefix))
    if limit is not None:
        if array.min_items > limit:
            return None
        rest = array.rest if limit > len(array.prefix) else NOTHING
        array = replace(array, max_items=limit, prefix=array.prefix[:limit], rest=rest)
    return array
