"""Objects as Lark: keys in the order of the schema or in any order, then free keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from structspec.errors import UnsupportedConstraint
from structspec.grammars.base import Finding
from structspec.grammars.json.layout import Layout
from structspec.grammars.json.plan import Cell, Plan, Slot
from structspec.grammars.json.shapes import Goal
from structspec.grammars.json.strings import (
    QUOTE,
    every_spelling,
    is_spelled_in_one_way,
    literal_body,
    regex_body,
)
from structspec.grammars.lark_text import LarkText, times
from structspec.grammars.regexes.lark import QUOTED_ANY

_MAX_STATES = 4_000  # of a count of keys: beyond, the count is left to validation
_MAX_COUNTED = 500  # keys: a chain of rules as long takes stack
_MAX_CHAINED = 400  # keys, each a rule that names the next
_MAX_ANY_ORDER = 64  # one bit for each key


@dataclass(frozen=True, slots=True)
class ObjectWriter:
    """Writes object plans; `value` gives the Lark of a goal one level in."""

    lark: LarkText
    layout: Layout
    value: Callable[[Goal], str]
    lose: Callable[[Finding], None]
    is_lenient: bool

    def write(self, plan: Plan, *, any_order: bool) -> str:
        """The body of a rule for these objects."""
        if plan.named and (self.layout.own or (plan.unnamed and _is_counted(plan))):
            for finding in plan.listing:
                self.lose(finding)
            plan = plan.unlisted()
        if any_order and (len(plan.slots) > 1 or (plan.slots and plan.cells)):
            return self._any_order(plan)
        num_states = (len(plan.slots) + 1) * (_cap(plan) + 1)
        may_be_empty = plan.min_members == 0 and not any(slot.is_required for slot in plan.slots)
        if _is_counted(plan) and (num_states > _MAX_STATES or len(plan.slots) > _MAX_COUNTED):
            self.lose(Finding("#", "maxProperties", "too many keys to count"))
            plan = _uncounted(plan)
        elif not _is_counted(plan):
            plan = _uncounted(plan)
        is_long = len(plan.slots) > _MAX_CHAINED and not _is_counted(plan)
        inner = self._in_halves(plan) if is_long else self._in_order(plan)
        return self._wrapped(inner, may_be_empty=may_be_empty)

    def _wrapped(self, inner: str | None, *, may_be_empty: bool) -> str:
        layout = self.layout
        bodies = [] if inner is None else [f"{layout.open_object} {inner} {layout.close_object}"]
        bodies += [layout.empty_object] if may_be_empty else []
        assert bodies, "an object that cannot be written"
        return " | ".join(bodies)

    def _item(self, slot: Slot) -> str:
        """A key and its value.

        The separator is a lexeme of its own, as behind free keys: the longest lexeme wins, and a
        key with its separator would win over the same key as a free one in another alternative.
        """
        key = literal_body(slot.name, is_lenient=self.is_lenient)
        if self.is_lenient and not is_spelled_in_one_way(slot.name):
            key = self.lark.terminal(key)
        return f"{key} {self.layout.key_separator} {self.value(slot.goal)}"

    def _free(self, plan: Plan) -> str | None:
        """A free key that is not listed, and its value; None where there are none."""
        items = [
            f"{self._key(cell, plan.taken)} {self.layout.key_separator} {self.value(cell.goal)}"
            for cell in plan.unnamed
        ]
        if not items:
            return None
        return self._rule(" | ".join(items))

    def _key(self, cell: Cell, taken: tuple[str, ...]) -> str:
        if cell.regex is not None:
            return self.lark.terminal(regex_body(cell.regex))
        body = f"{QUOTE} {self.lark.terminal(QUOTED_ANY)}* {QUOTE}"
        if taken:
            body = f"({body}) & ~({' | '.join(map(every_spelling, taken))})"
        return self.lark.terminal(body)

    def _in_order(self, plan: Plan) -> str | None:
        """What stands between the brackets of an object that is not empty.

        Row by row from the last key: what may follow when `count` keys are written already.
        """
        cap, comma = _cap(plan), self.layout.item_separator
        row = [self._tail(plan, count) for count in range(cap + 1)]
        may_be_first = _num_leading_optional(plan.slots) + 1
        for index in reversed(range(len(plan.slots))):
            slot, after = plan.slots[index], row
            item = self._item(slot)
            if index < may_be_first:  # both rows use what follows: a name keeps the text short
                after = [after[0], *(rest and self._rule(rest) for rest in after[1:])]
            row = []
            for count in range(cap + 1):
                if count == 0 and index >= may_be_first:
                    row.append(None)  # a required key stands before it
                    continue
                is_full = plan.max_members is not None and count >= plan.max_members
                rest = None if is_full else after[min(count + 1, cap)]
                skipped = None if slot.is_required else after[count]
                row.append(self._step(f"{comma} {item}" if count else item, rest, skipped))
        return row[0]

    def _in_halves(self, plan: Plan) -> str:
        """The same for many keys: rules for 2, 4, 8 ... keys in a row, since long chains of rules
        take llguidance more stack than there is.

        What follows a key is put together from the largest of them: of 7 keys, behind the first
        those for 1, 2 and 4.
        """
        comma = self.layout.item_separator
        items = [self._item(slot) for slot in plan.slots]
        rows = [
            [
                f"{comma} {item}" if slot.is_required else f"({comma} {item})?"
                for slot, item in zip(plan.slots, items, strict=True)
            ]
        ]
        while len(rows[-1]) > 1:
            pairs = zip(rows[-1][::2], rows[-1][1::2], strict=False)
            rows.append([self._rule(f"{left} {right}") for left, right in pairs])
        tail = self._tail(plan, 1) or ""
        num_first = _num_leading_optional(plan.slots) + 1
        bodies = [
            f"{item} {_from(rows, index + 1, len(items))} {tail}"
            for index, item in enumerate(items[:num_first])
        ]
        if num_first > len(items) and (only_free := self._tail(plan, 0)) is not None:
            bodies.append(only_free)
        return f"({' | '.join(bodies)})"

    def _step(self, item: str, rest: str | None, skipped: str | None) -> str | None:
        """With the key and what follows it, or without."""
        if rest is None:
            return skipped
        if skipped is None:
            return f"{item} {rest}".strip()
        if skipped == rest:
            return f"({item})? {rest}".strip()
        return self._rule(f"{item} {rest} | {skipped}" if skipped else f'{item} {rest} | ""')

    def _rule(self, body: str) -> str:
        return self.lark.rule(body, self.layout.own, self.layout.same)

    def _tail(self, plan: Plan, count: int) -> str | None:
        """The free keys that may follow `count` others; "" for none."""
        low = max(plan.min_members - count, 0)
        high = None if plan.max_members is None else plan.max_members - count
        free = self._free(plan)
        if plan.named and (high is None or high > 0):
            return self._named_tail(plan, free, low, high, is_first=count == 0)
        if free is None or high == 0:
            return "" if count and not low else None
        comma = self.layout.item_separator
        if count:
            return f"({comma} {free}){times(low, high)}"
        more = times(max(low - 1, 0), None if high is None else high - 1)
        return free if high == 1 else f"{free} ({comma} {free}){more}"

    def _named_tail(
        self, plan: Plan, free: str | None, low: int, high: int | None, *, is_first: bool
    ) -> str | None:
        """The same where keys are listed, each at most once: a bit for each that was written."""
        if low > len(plan.named) and free is None:
            return None
        done = [f"bit_count_ge(_, {low})"] if low else []
        room = [] if high is None else [f"bit_count_lt(_, {high})"]
        name = self._bits(plan.named, free, done, room)
        return self._firsts(name, plan.named, free) if is_first else f"{name}::0x0"

    def _bits(
        self, slots: Sequence[Slot], free: str | None, done: list[str], room: list[str]
    ) -> str:
        """The rule for what may follow the keys whose bits are set, to the end of the object."""
        name, comma = self.lark.reserve(), self.layout.item_separator
        bodies = [f'""{_condition(done)}']
        for bit, slot in enumerate(slots):
            condition = _condition([f"bit_clear({bit})", *room])
            bodies.append(f"{comma} {self._item(slot)} {name}::set_bit({bit}){condition}")
        bodies += [] if free is None else [f"{comma} {free} {name}::_"]
        self.lark.define(f"{name}::_", " | ".join(bodies))
        return name

    def _firsts(self, name: str, slots: Sequence[Slot], free: str | None) -> str:
        """Any key, and what that rule says may follow it."""
        items = [f"{self._item(slot)} {name}::{1 << bit:#x}" for bit, slot in enumerate(slots)]
        items += [] if free is None else [f"{free} {name}::0x0"]
        return f"({' | '.join(items)})"

    def _any_order(self, plan: Plan) -> str:
        """One bit for each key that was written; required keys have the first bits."""
        if self.layout.own:
            raise UnsupportedConstraint(
                "property_order='any' and style='pretty' do not go together"
            )
        slots = sorted((*plan.slots, *plan.named), key=lambda slot: not slot.is_required)
        if len(slots) > _MAX_ANY_ORDER:
            raise UnsupportedConstraint(
                f"property_order='any' takes up to {_MAX_ANY_ORDER} keys, not {len(slots)}"
            )
        num_required = sum(slot.is_required for slot in slots)
        if (plan.unnamed and _is_counted(plan)) or plan.min_members > len(slots):
            for keyword, is_there in (
                ("minProperties", plan.min_members),
                ("maxProperties", plan.max_members is not None),
            ):
                if is_there:
                    self.lose(Finding("#", keyword, "free keys are not counted in any order"))
            plan = replace(plan, min_members=min(plan.min_members, 1), max_members=None)
        # behind a key the object is not empty: only from two on they have to be counted
        done = [f"is_ones([0:{num_required}])"] if num_required else []
        done += [f"bit_count_ge(_, {plan.min_members})"] if plan.min_members > 1 else []
        may_be_empty = plan.min_members == 0 and num_required == 0
        room = [] if plan.max_members is None else [f"bit_count_lt(_, {plan.max_members})"]
        if plan.max_members == 0:
            return self._wrapped(None, may_be_empty=may_be_empty)
        free = self._free(plan)
        name = self._bits(slots, free, done, room)
        return self._wrapped(self._firsts(name, slots, free), may_be_empty=may_be_empty)


def _condition(conditions: list[str]) -> str:
    if not conditions:
        return ""
    joined = conditions[-1]
    for condition in reversed(conditions[:-1]):
        joined = f"and({condition}, {joined})"
    return f" %if {joined}"


def _is_counted(plan: Plan) -> bool:
    """Whether the number of keys has to be known, beyond whether there are any."""
    num_required = sum(slot.is_required for slot in plan.slots)
    most = None if plan.unnamed else len(plan.slots) + len(plan.named)
    is_bound = plan.max_members is not None and (most is None or most > plan.max_members)
    return is_bound or plan.min_members > max(num_required, 1)


def _from(rows: list[list[str]], start: int, end: int) -> str:
    """The pieces from `start` on: `rows[n]` holds them by 2 ** n."""
    found: list[str] = []
    while start < end:
        size = 0
        while start % 2 ** (size + 1) == 0 and start + 2 ** (size + 1) <= end:
            size += 1
        found.append(rows[size][start // 2**size])
        start += 2**size
    return " ".join(found)


def _num_leading_optional(slots: tuple[Slot, ...]) -> int:
    """How many keys may be left out before the first that must be there."""
    return next((i for i, slot in enumerate(slots) if slot.is_required), len(slots))


def _cap(plan: Plan) -> int:
    """Counts from here on are all alike."""
    if not _is_counted(plan):
        return 1
    return max(1, plan.min_members, plan.max_members or 0)


def _uncounted(plan: Plan) -> Plan:
    return replace(plan, min_members=0, max_members=None)
