"""Arrays as Lark: items by place, counted items, and items that may not repeat."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from structspec.errors import UnsupportedConstraint
from structspec.grammars.base import Finding
from structspec.grammars.json.layout import Layout
from structspec.grammars.json.shapes import ANYTHING, Array, Goal, both
from structspec.grammars.lark_text import LarkText, times

_MAX_STATES = 800  # of a count of items: beyond, `contains` is left to validation
_MAX_PLACES = 500  # each a rule inside the one before, which takes stack


def counted_goals(array: Array) -> tuple[Goal, ...]:
    """For each place up to the rest: the goal of an item that is counted, and of one that is not.

    Where nothing is counted there are none; only the first `contains` is.
    """
    if not array.counted:
        return ()
    wanted = array.counted[0]
    goals: list[Goal] = []
    for index in range(len(array.prefix) + 1):
        item = array.goal_at(index)
        # an item that is not counted must break the goal only where counting has an upper end
        other = ANYTHING if wanted.maximum is None else _opposite(wanted.goal)
        goals += (both(item, wanted.goal), both(item, other))
    return tuple(goals)


State = tuple[int, int]  # places written and items counted, both only as far as they matter


def count_ends(array: Array) -> State | None:
    """From where on places and counts are all alike; None where there are too many to follow."""
    wanted, high = array.counted[0], array.max_items
    # place 1 differs from 0 by its comma
    max_place = max(1, len(array.prefix), array.min_items if high is None else high)
    max_count = wanted.minimum if wanted.maximum is None else wanted.maximum
    is_too_much = (max_place + 1) * (max_count + 1) > _MAX_STATES
    return None if is_too_much else (max_place, max_count)


def live_states(array: Array, ends: State, has_value: Callable[[Goal], bool]) -> frozenset[State]:
    """The states of counting from which an array can still end.

    Where `has_value` is true of more goals there are more of them, never fewer.
    """
    wanted, (max_place, max_count) = array.counted[0], ends
    goals = counted_goals(array)
    is_there = [goal is not None and has_value(goal) for goal in goals]
    live = {
        (place, count)
        for place in range(max_place + 1)
        for count in range(max_count + 1)
        if place >= array.min_items and count >= wanted.minimum
    }
    before: dict[State, list[State]] = {}
    for place in range(max_place + 1 if array.max_items is None else array.max_items):
        index = 2 * min(place, len(array.prefix))
        for count in range(max_count + 1):
            if is_there[index] and (wanted.maximum is None or count < wanted.maximum):
                after = min(place + 1, max_place), min(count + 1, max_count)
                before.setdefault(after, []).append((place, count))
            if is_there[index + 1]:
                after = min(place + 1, max_place), count
                before.setdefault(after, []).append((place, count))
    waiting = [*live]
    while waiting:
        found = [state for state in before.get(waiting.pop(), ()) if state not in live]
        live.update(found)
        waiting += found
    return frozenset(live)


def can_be_counted(array: Array, has_value: Callable[[Goal], bool]) -> bool:
    """Whether there is an array with as many counted items as it says, as far as is followed."""
    if any(c.maximum is not None and c.minimum > c.maximum for c in array.counted):
        return False
    if not array.counted:
        return True
    ends = count_ends(array)
    return ends is None or (0, 0) in live_states(array, ends, has_value)


def _opposite(goal: Goal) -> Goal:
    if not goal:
        return None if goal is not None else ANYTHING
    ((index, holds),) = goal
    return ((index, not holds),)


@dataclass(frozen=True, slots=True)
class ArrayWriter:
    """Writes array shapes; `item` gives the Lark of a goal one level in, None where it has none."""

    lark: LarkText
    layout: Layout
    item: Callable[[Goal], str | None]
    choices: Callable[[Goal], tuple[str, ...] | None]  # all the values of a goal, if they are few
    lose: Callable[[Finding], None]

    def write(self, array: Array) -> str:
        """The body of a rule for these arrays."""
        if array.unique and (array.max_items is None or array.max_items > 1):
            if (body := self._distinct(array)) is not None:
                return body
            for pointer in array.unique:
                self.lose(Finding(pointer, "uniqueItems", "items are not compared by the mask"))
        if array.counted:
            for other in array.counted[1:]:
                self.lose(Finding(other.pointer, "contains", "only one is counted by the mask"))
            if (body := self._counted(array)) is not None:
                return body
            self.lose(Finding(array.counted[0].pointer, "contains", "too many items to count"))
        return self._plain(array)

    def _wrapped(self, inner: str | None, *, may_be_empty: bool) -> str:
        """`inner`, which is not empty, in brackets; or empty brackets."""
        layout = self.layout
        bodies = [] if inner is None else [f"{layout.open_array} {inner} {layout.close_array}"]
        bodies += [layout.empty_array] if may_be_empty else []
        assert bodies, "an array that cannot be written"
        return " | ".join(bodies)

    def _plain(self, array: Array) -> str:
        if len(array.prefix) > _MAX_PLACES:
            raise UnsupportedConstraint(
                f"an array describes up to {_MAX_PLACES} items by their place, not"
                f" {len(array.prefix)}"
            )
        low, high, first = array.min_items, array.max_items, len(array.prefix)
        inner = self._repeated(array, max(low - first, 0), None if high is None else high - first)
        comma = self.layout.item_separator
        for index in reversed(range(first)):
            item = self.item(array.prefix[index])
            if item is None:  # bounded: nothing stands from here on
                inner = None
                continue
            lead = f"{comma} {item}" if index else item
            if inner is None:
                inner = lead
            elif low > index + 1 or not inner:
                inner = f"{lead} {inner}"
            else:
                inner = f"{lead} ({self._rule(inner)})?"
        return self._wrapped(inner or None, may_be_empty=low == 0)

    def _rule(self, body: str) -> str:
        return self.lark.rule(body, self.layout.own, self.layout.same)

    def _repeated(self, array: Array, low: int, high: int | None) -> str | None:
        """The items behind the prefix, the first with a comma if there is a prefix."""
        item = self.item(array.rest)
        if item is None or high == 0:
            return None
        comma = self.layout.item_separator
        if array.prefix:
            return f"({comma} {item}){times(max(low, 1), high)}"
        more = f"({comma} {item}){times(max(low - 1, 0), None if high is None else high - 1)}"
        return f"{item} {more}" if high != 1 else item

    def _counted(self, array: Array) -> str | None:
        """A rule for each number of items so far and of those counted."""
        wanted, ends = array.counted[0], count_ends(array)
        if ends is None:
            return None
        first, high = len(array.prefix), array.max_items
        goals = counted_goals(array)
        live = live_states(array, ends, lambda goal: self.item(goal) is not None)
        names: dict[State, str] = {}

        def after(place: int, count: int) -> str | None:
            """The rule for what follows `place` items, `count` of them counted."""
            key = (min(place, ends[0]), min(count, ends[1]))
            if key not in live:
                return None
            if key not in names:
                names[key] = name = self.lark.reserve()
                self.lark.define(name, " | ".join(step(*key)), self.layout.own)
            return names[key] + self.layout.same

        def step(at: int, count: int) -> list[str]:
            bodies = ['""'] if at >= array.min_items and count >= wanted.minimum else []
            if high is not None and at >= high:
                return bodies
            index = min(at, first)
            lead = f"{self.layout.item_separator} " if at else ""
            for goal, more in ((goals[2 * index], 1), (goals[2 * index + 1], 0)):
                if more and wanted.maximum is not None and count >= wanted.maximum:
                    continue
                item = self.item(goal)
                rest = None if item is None else after(at + 1, count + more)
                if rest is not None:
                    bodies.append(f"{lead}{item} {rest}")
            return bodies

        start = [body for body in step(0, 0) if body != '""']
        may_be_empty = array.min_items == 0 and wanted.minimum == 0
        if not start and not may_be_empty:
            return None
        inner = f"({' | '.join(start)})" if start else None
        return self._wrapped(inner, may_be_empty=may_be_empty)

    def _distinct(self, array: Array) -> str | None:
        """Values out of a short list, each at most once: a bit for each that was written."""
        values = None if array.prefix or array.counted else self.choices(array.rest)
        if not values or self.layout.own:
            return None
        low, high = array.min_items, array.max_items
        name, comma = self.lark.reserve(), self.layout.item_separator
        room = "" if high is None else f"bit_count_lt(_, {high})"
        bodies = [f'"" %if bit_count_ge(_, {low})']
        for bit, value in enumerate(values):
            free = f"bit_clear({bit})"
            condition = f"and({free}, {room})" if room else free
            bodies.append(f"{comma} {value} {name}::set_bit({bit}) %if {condition}")
        self.lark.define(f"{name}::_", " | ".join(bodies))
        firsts = " | ".join(f"{value} {name}::{1 << bit:#x}" for bit, value in enumerate(values))
        return self._wrapped(f"({firsts})", may_be_empty=low == 0)
