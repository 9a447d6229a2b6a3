"""What belongs to two shapes at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import gcd, lcm

from structspec.grammars.json.shapes import (
    Array,
    Boolean,
    Limit,
    Losses,
    Meant,
    Member,
    Null,
    Number,
    Object,
    Shape,
    String,
    both,
    bounded_array,
    distinct,
    smaller,
)
from structspec.grammars.regexes.derive import matches


def meet_all(left: tuple[Shape, ...], right: tuple[Shape, ...]) -> tuple[Shape, ...]:
    """The shapes that belong to both; each once."""
    met: list[Shape] = []
    for one, other in product(left, right):
        if type(one) is type(other):
            met += (shape for shape in (meet(one, other),) if shape is not None)
    return distinct(met)


def meet(one: Shape, other: Shape) -> Shape | None:
    """What belongs to two shapes of one type; None where it is plain that nothing does."""
    losses = one.losses | other.losses
    meant = None if one.meant is None or other.meant is None else one.meant | other.meant
    match one, other:
        case Null(), Null():
            return Null(losses, meant)
        case Boolean(), Boolean():
            values = one.values & other.values
            return Boolean(values, losses, meant) if values else None
        case Number(), Number():
            return _meet_numbers(one, other, losses, meant)
        case String(), String():
            return _meet_strings(one, other, losses, meant)
        case Array(), Array():
            return _meet_arrays(one, other, losses, meant)
        case Object(), Object():
            return _meet_objects(one, other, losses, meant)
    raise AssertionError("shapes of one type")


def _meet_numbers(one: Number, other: Number, losses: Losses, meant: Meant) -> Number | None:
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
        meant,
    )
    lists = [values for values in (one.values, other.values) if values is not None]
    if lists:
        shared = set(lists[-1])
        kept = tuple(value for value in lists[0] if value in shared and met.has(value))
        return Number(met.is_integer, values=kept, losses=losses, meant=meant) if kept else None
    if met.lower and met.upper:
        low, high = met.lower, met.upper
        is_point = low.value == high.value
        if low.value > high.value or (is_point and (low.is_open or high.is_open)):
            return None
        if is_point:
            is_there = met.has(low.value)
            return (
                Number(met.is_integer, values=(low.value,), losses=losses, meant=meant)
                if is_there
                else None
            )
    return met


def _common_multiple(one: Fraction | None, other: Fraction | None) -> Fraction | None:
    if one is None or other is None:
        return one or other
    return Fraction(lcm(one.numerator, other.numerator), gcd(one.denominator, other.denominator))


def _tighter(one: Limit | None, other: Limit | None, *, sign: int) -> Limit | None:
    if one is None or other is None:
        return one or other
    return max(one, other, key=lambda limit: (sign * limit.value, limit.is_open))


def _meet_strings(one: String, other: String, losses: Losses, meant: Meant) -> String | None:
    low = max(one.min_length, other.min_length)
    high = smaller(one.max_length, other.max_length)
    regexes = tuple(dict.fromkeys(one.regexes + other.regexes))
    lists = [values for values in (one.values, other.values) if values is not None]
    if not lists:
        is_empty = high is not None and low > high
        return None if is_empty else String(low, high, regexes, None, losses, meant)
    shared = set(lists[-1])
    kept = tuple(
        text
        for text in lists[0]
        if text in shared
        and low <= len(text)
        and (high is None or len(text) <= high)
        and all(matches(regex, text) for regex in regexes)
    )
    return String(values=kept, losses=losses, meant=meant) if kept else None


def _meet_arrays(one: Array, other: Array, losses: Losses, meant: Meant) -> Array | None:
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
            meant=meant,
        )
    )


def _meet_objects(one: Object, other: Object, losses: Losses, meant: Meant) -> Object | None:
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
    return Object(members, layers, low, high, one.evaluated | other.evaluated, losses, meant)


def _names(one: Object, other: Object) -> Iterator[str]:
    """Every key once: those that `properties` names first, in the order they come."""
    declared = dict.fromkeys(
        name
        for shape in (one, other)
        for name, member in shape.members.items()
        if member.is_declared
    )
    yield from dict.fromkeys((*declared, *one.members, *other.members))
