"""The normal form of a JSON schema: alternatives, each of one type, over goals for their parts.

A claim says that a value must, or must not, satisfy one subschema. A goal is a conjunction of
claims; whatever combines subschemas (`allOf`, `anyOf`, `oneOf`, `not`, `if`, `$ref` ...) is worked
out when a goal is expanded into shapes, so a shape holds no combination any more:

    goal = claim & claim & ...          shapes(goal) = shape | shape | ...
    shape = null | boolean | number | string | array of goals | object of goals

There are finitely many claims in a schema, so finitely many goals: recursion ends by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import product
from math import gcd, lcm

from structspec.grammars.base import Finding
from structspec.grammars.regexes.derive import matches
from structspec.grammars.regexes.syntax import Regex

Claim = tuple[int, bool]  # which subschema, and whether it holds
Goal = tuple[Claim, ...] | None  # None: no value at all
ANYTHING: Goal = ()
NOTHING: Goal = None

Losses = frozenset[Finding]  # keywords that a shape is wider than
_NONE: Losses = frozenset()


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


@dataclass(frozen=True, slots=True)
class Boolean:
    """true, false or both."""

    values: frozenset[bool] = frozenset((True, False))
    losses: Losses = _NONE


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


def meet_all(left: tuple[Shape, ...], right: tuple[Shape, ...]) -> tuple[Shape, ...]:
    """The shapes that belong to both; each once."""
    met: list[Shape] = []
    for one, other in product(left, right):
        if type(one) is type(other):
            met += (shape for shape in (meet(one, other),) if shape is not None)
    return distinct(met)


def distinct(shapes: list[Shape] | tuple[Shape, ...]) -> tuple[Shape, ...]:
    """The shapes, equal ones once."""
    return tuple(dict.fromkeys(shapes))


def meet(one: Shape, other: Shape) -> Shape | None:
    """What belongs to two shapes of one type; None where it is plain that nothing does."""
    losses = one.losses | other.losses
    match one, other:
        case Null(), Null():
            return Null(losses)
        case Boolean(), Boolean():
            values = one.values & other.values
            return Boolean(values, losses) if values else None
        case Number(), Number():
            return _meet_numbers(one, other, losses)
        case String(), String():
            return _meet_strings(one, other, losses)
        case Array(), Array():
            return _meet_arrays(one, other, losses)
        case Object(), Object():
            return _meet_objects(one, other, losses)
    raise AssertionError("shapes of one type")


def _meet_numbers(one: Number, other: Number, losses: Losses) -> Number | None:
    kinds = {kind for kind in (one.is_integer, other.is_integer) if kind is not None}
    if len(kinds) == 2:
        return None
    met = Number(
        kinds.pop() if kinds else None,
        _tighter(one.lower, other.lower, sign=1),
        _tighter(one.upper, other.upper, sign=-1),
        _common_multiple(one.multiple, other.multiple),
        None,
        one.excluded | other.excluded,
        losses,
    )
    lists = [values for values in (one.values, other.values) if values is not None]
    if lists:
        shared = set(lists[-1])
        kept = tuple(value for value in lists[0] if value in shared and met.has(value))
        return Number(met.is_integer, values=kept, losses=losses) if kept else None
    if met.lower and met.upper:
        low, high = met.lower, met.upper
        is_point = low.value == high.value
        if low.value > high.value or (is_point and (low.is_open or high.is_open)):
            return None
        if is_point:
            is_there = met.has(low.value)
            return Number(met.is_integer, values=(low.value,), losses=losses) if is_there else None
    return met


def _common_multiple(one: Fraction | None, other: Fraction | None) -> Fraction | None:
    if one is None or other is None:
        return one or other
    return Fraction(lcm(one.numerator, other.numerator), gcd(one.denominator, other.denominator))


def _tighter(one: Limit | None, other: Limit | None, *, sign: int) -> Limit | None:
    if one is None or other is None:
        return one or other
    return max(one, other, key=lambda limit: (sign * limit.value, limit.is_open))


def _meet_strings(one: String, other: String, losses: Losses) -> String | None:
    low = max(one.min_length, other.min_length)
    high = smaller(one.max_length, other.max_length)
    regexes = tuple(dict.fromkeys(one.regexes + other.regexes))
    lists = [values for values in (one.values, other.values) if values is not None]
    if not lists:
        is_empty = high is not None and low > high
        return None if is_empty else String(low, high, regexes, None, losses)
    shared = set(lists[-1])
    kept = tuple(
        text
        for text in lists[0]
        if text in shared
        and low <= len(text)
        and (high is None or len(text) <= high)
        and all(matches(regex, text) for regex in regexes)
    )
    return String(values=kept, losses=losses) if kept else None


def smaller(one: int | None, other: int | None) -> int | None:
    """The smaller of two upper bounds; None is none."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def _meet_arrays(one: Array, other: Array, losses: Losses) -> Array | None:
    length = max(len(one.prefix), len(other.prefix))
    prefix = tuple(both(one.goal_at(i), other.goal_at(i)) for i in range(length))
    evaluated = (
        None
        if one.num_evaluated is None or other.num_evaluated is None
        else max(one.num_evaluated, other.num_evaluated)
    )
    return bounded_array(
        replace(
            one,
            prefix=prefix,
            rest=both(one.rest, other.rest),
            min_items=max(one.min_items, other.min_items),
            max_items=smaller(one.max_items, other.max_items),
            contains=tuple(dict.fromkeys(one.contains + other.contains)),
            unique=tuple(dict.fromkeys(one.unique + other.unique)),
            num_evaluated=evaluated,
            losses=losses,
        )
    )


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


def _meet_objects(one: Object, other: Object, losses: Losses) -> Object | None:
    members: dict[str, Member] = {}
    for name in _names(one, other):
        mine, theirs = one.members.get(name), other.members.get(name)
        goal = both(
            one.goal_for(name) if mine is None else mine.goal,
            other.goal_for(name) if theirs is None else theirs.goal,
        )
        known = [member for member in (mine, theirs) if member is not None]
        is_required = any(member.is_required for member in known)
        if goal is None and is_required:
            return None
        members[name] = Member(
            goal,
            is_required,
            any(member.is_declared for member in known),
            all(member.is_foreign for member in known),
        )
    low = max(one.min_members, other.min_members)
    high = smaller(one.max_members, other.max_members)
    if high is not None and low > high:
        return None
    layers = tuple(dict.fromkeys(one.layers + other.layers))
    return Object(members, layers, low, high, one.evaluated | other.evaluated, losses)


def _names(one: Object, other: Object) -> Iterator[str]:
    """Every key once: those that `properties` names first, in the order they come."""
    declared = dict.fromkeys(
        name
        for shape in (one, other)
        for name, member in shape.members.items()
        if member.is_declared
    )
    yield from dict.fromkeys((*declared, *one.members, *other.members))
