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
        wanted = array.counted[0]
        first, high = len(array.prefix), array.max_items
        # place 1 differs from 0 by its comma
        max_place = max(1, first, array.min_items if high is None else high)
        max_count = wanted.minimum if wanted.maximum is None else wanted.maximum
        if (max_place + 1) * (max_count + 1) > _MAX_STATES:
            return None
        goals = counted_goals(array)
        names: dict[tuple[int, int], str | None] = {}

        def after(place: int, count: int) -> str | None:
            """The rule for what follows `place` items, `count` of them counted."""
            key = (min(place, max_place), min(count, max_count))
            if key not in names:
                names[key] = name = self.lark.reserve()
                bodies = step(*key)
                if bodies:
                    self.lark.define(name, " | ".join(bodies), self.layout.own)
                else:
                    names[key] = None
            known = names[key]
            return None if known is None else known + self.layout.same

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
