"""Values that can be listed, and whether enough of them are different for `uniqueItems`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction

from structspec.grammars.json.numbers import multiples_in_range
from structspec.grammars.json.plan import Plan
from structspec.grammars.json.shapes import Array, Boolean, Goal, Null, Number, Shape, String
from structspec.grammars.json.strings import list_texts

MAX_LISTED = 40

Value = tuple[str, object]  # its kind, so that 1 is not true
Listing = dict[Value, Shape] | None  # each value as a shape; None where they cannot be listed


def list_values(parts: Iterable[Plan | Shape]) -> Listing:
    """All the values of some shapes, if they are few and no arrays or objects."""
    found: dict[Value, Shape] = {}
    for part in parts:
        singles = None if isinstance(part, Plan | Array) else _list_scalars(part)
        if singles is None or len(found) + len(singles) > MAX_LISTED:
            return None
        found = {**found, **singles}
    return found


def _list_scalars(shape: Shape) -> Listing:
    match shape:
        case Null():
            return {("null", None): shape}
        case Boolean():
            return {
                ("boolean", value): replace(shape, values=frozenset((value,)))
                for value in sorted(shape.values)
            }
        case Number():
            numbers = _list_numbers(shape)
            return (
                None
                if numbers is None
                else {
                    ("number", value): Number(
                        shape.is_integer, values=(value,), losses=shape.losses
                    )
                    for value in numbers
                }
            )
        case String():
            texts = list_texts(shape, MAX_LISTED)
            return (
                None
                if texts is None
                else {
                    ("string", text): String(values=(text,), losses=shape.losses) for text in texts
                }
            )
    return None


def _list_numbers(number: Number) -> tuple[Fraction, ...] | None:
    if number.values is not None:
        return number.values
    step = number.multiple
    if number.is_integer:
        step = Fraction(1) if step is None else Fraction(step.numerator)
    return None if step is None else multiples_in_range(number, step, MAX_LISTED)


def has_enough_values(array: Array, values_of: Callable[[Goal], Listing]) -> bool:
    """Whether the items that must be there can all be different, as far as they can be listed."""
    if not array.unique or array.min_items < 2:
        return True
    num_first = min(array.min_items, len(array.prefix))
    places = [values_of(goal) for goal in array.prefix[:num_first]]
    if num_behind := array.min_items - num_first:
        rest = values_of(array.rest)
        if rest is not None and len(rest) < num_behind:
            return False
        places += [rest] * (0 if rest is None else num_behind)
    return _can_differ([tuple(place) for place in places if place is not None])


def _can_differ(places: list[tuple[Value, ...]]) -> bool:
    """Whether each place can have a value of its own: a matching of places and values."""
    owners: dict[Value, int] = {}

    def settle(place: int, asked: set[Value]) -> bool:
        for value in places[place]:
            if value not in asked:
                asked.add(value)
                if value not in owners or settle(owners[value], asked):
                    owners[value] = place
                    return True
        return False

    return all(settle(place, set()) for place in range(len(places)))
