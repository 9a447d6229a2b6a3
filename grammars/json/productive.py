"""Which goals have a finite value at all, and with which of their shapes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from structspec.errors import GrammarError
from structspec.grammars.json.arrays import can_be_counted, counted_goals
from structspec.grammars.json.expand import Expander
from structspec.grammars.json.listed import Listing, has_enough_values, list_values
from structspec.grammars.json.numbers import has_number
from structspec.grammars.json.plan import Plan, plan_object
from structspec.grammars.json.shapes import (
    Array,
    Goal,
    Number,
    Object,
    Shape,
    String,
    bounded_array,
)
from structspec.grammars.json.strings import has_text

_MAX_GOALS = 20_000

# An object is known by its plan from here on
Part = Plan | Shape


@dataclass(slots=True)
class Productive:
    """Every goal that can be reached from the root, with the parts that have a finite value."""

    parts: dict[Goal, tuple[Part, ...]]

    def __contains__(self, goal: Goal) -> bool:
        return bool(self.parts.get(goal))


def find_productive(expander: Expander, root: Goal, *, closed: bool) -> Productive:
    """The least solution of: a part has a value when all that it must hold has one."""
    found = _with_enough_values(_reach(expander, root, closed=closed))
    finite: set[Goal] = set()
    order = list(reversed(found))  # parts come after their whole: most are settled in one pass
    num_before = -1
    while num_before < len(finite):
        num_before = len(finite)
        for goal in order:
            if goal not in finite and any(_is_finite(part, finite) for part in found[goal]):
                finite.add(goal)
    kept = {
        goal: tuple(
            cut for part in found[goal] if (cut := _without_infinite(part, finite)) is not None
        )
        for goal in order
    }
    return Productive(kept)


def _reach(expander: Expander, root: Goal, *, closed: bool) -> dict[Goal, tuple[Part, ...]]:
    found: dict[Goal, tuple[Part, ...]] = {}
    waiting: list[Goal] = [root]
    while waiting:
        goal = waiting.pop()
        if goal in found or goal is None:
            continue
        if len(found) >= _MAX_GOALS:
            raise GrammarError(f"the schema unfolds to more than {_MAX_GOALS} parts", pointer="#")
        parts: list[Part] = []
        for shape in expander.typed(goal):
            part = _part(shape, expander, closed=closed)
            if part is not None:
                parts.append(part)
                waiting += _goals(part)
        found[goal] = tuple(parts)
    return found


def _with_enough_values(found: dict[Goal, tuple[Part, ...]]) -> dict[Goal, tuple[Part, ...]]:
    """Without the arrays whose items would have to repeat."""

    def values_of(goal: Goal) -> Listing:
        return list_values(found.get(goal, ()))

    return {
        goal: tuple(
            part
            for part in parts
            if not isinstance(part, Array) or has_enough_values(part, values_of)
        )
        for goal, parts in found.items()
    }


def _part(shape: Shape, expander: Expander, *, closed: bool) -> Part | None:
    """An object's plan, another shape as it is; None for what plainly has no value.

    A terminal without texts would be found out only when the text has come to it.
    """
    match shape:
        case Object():
            return plan_object(shape, expander, closed=closed)
        case Number() if not has_number(shape):
            return None
        case String() if not has_text(shape):
            return None
    return shape


def _goals(part: Part) -> tuple[Goal, ...]:
    if isinstance(part, Plan):
        return part.goals
    if isinstance(part, Array):
        return (*part.prefix, part.rest, *counted_goals(part))
    return ()


def _held(part: Part) -> tuple[Goal, ...]:
    """The goals of what may stand in it."""
    if isinstance(part, Array):
        return (*part.prefix, part.rest)
    return part.goals if isinstance(part, Plan) else ()


def _is_finite(part: Part, finite: set[Goal]) -> bool:
    if isinstance(part, Plan):
        required = [slot.goal for slot in part.slots if slot.is_required]
        num_possible = sum(slot.goal in finite for slot in (*part.slots, *part.named))
        has_more = any(cell.goal in finite for cell in part.unnamed)
        return finite.issuperset(required) and (has_more or num_possible >= part.min_members)
    if isinstance(part, Array):
        num_first = min(part.min_items, len(part.prefix))
        needed = [part.prefix[i] for i in range(num_first)]
        needed += [part.rest] if part.min_items > len(part.prefix) else []
        return finite.issuperset(needed) and can_be_counted(part, finite.__contains__)
    return True


def _without_infinite(part: Part, finite: set[Goal]) -> Part | None:
    """The part with everything left out that has no finite value."""
    if not _is_finite(part, finite):
        return None
    if finite.issuperset(_held(part)):
        return part
    if isinstance(part, Plan):
        slots = tuple(slot for slot in part.slots if slot.goal in finite)
        cells = tuple(cell for cell in part.cells if cell.goal in finite)
        return replace(part, slots=slots, cells=cells)
    if isinstance(part, Array):
        prefix = tuple(goal if goal in finite else None for goal in part.prefix)
        return bounded_array(
            replace(part, prefix=prefix, rest=part.rest if part.rest in finite else None)
        )
    return part
