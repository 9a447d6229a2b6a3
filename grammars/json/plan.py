"""What an object shape comes to: which keys in which order, which free keys, and how many."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

from structspec.grammars.base import Finding
from structspec.grammars.json.expand import Expander
from structspec.grammars.json.shapes import ANYTHING, Goal, Layer, Object, String, both
from structspec.grammars.json.strings import string_regex
from structspec.grammars.regexes import syntax
from structspec.grammars.regexes.derive import (
    are_disjoint,
    can_always_grow,
    is_empty,
    matches,
    words,
)
from structspec.grammars.regexes.syntax import Regex

MAX_NAMED = 64  # free keys told apart by one bit each
_REPEATED = "a key may come twice where few are possible"
_MAX_OVERLAPPING = 5  # patterns: one cell for each of their 2 ** 5 combinations


@dataclass(frozen=True, slots=True)
class Slot:
    """A key that is spelled out."""

    name: str
    goal: Goal
    is_required: bool


@dataclass(frozen=True, slots=True)
class Cell:
    """Free keys of one kind (`regex` None: any not taken) whose values meet one goal.

    `names` are all the keys there are, where they are few enough to be listed.
    """

    regex: Regex | None
    goal: Goal
    names: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """An object ready to be written; `taken` are the names that no free key may have."""

    slots: tuple[Slot, ...]
    cells: tuple[Cell, ...]
    taken: tuple[str, ...]
    min_members: int
    max_members: int | None
    losses: frozenset[Finding]
    is_closed: bool = False
    listing: frozenset[Finding] = frozenset()  # what is lost where listed keys are not told apart

    @property
    def named(self) -> tuple[Slot, ...]:
        """The free keys that are listed."""
        return tuple(
            Slot(name, cell.goal, False) for cell in self.cells for name in cell.names or ()
        )

    @property
    def unnamed(self) -> tuple[Cell, ...]:
        """The free keys that are not."""
        return tuple(cell for cell in self.cells if cell.names is None)

    def unlisted(self) -> Plan:
        """The same with all free keys alike, none of them told from the others."""
        return replace(self, cells=tuple(replace(cell, names=None) for cell in self.cells))

    @property
    def goals(self) -> tuple[Goal, ...]:
        """What it is made of."""
        return (*(slot.goal for slot in self.slots), *(cell.goal for cell in self.cells))


def plan_object(shape: Object, expander: Expander, *, closed: bool) -> Plan | None:
    """The plan; None where no object can be written.

    Closed, an object that is silent about other keys has only those that it declares or that match
    a pattern of its own: none that is only spoken of where some other description is broken.
    """
    losses = set(shape.losses)
    names, name_losses = _names_regex(shape.layers, expander)
    losses |= name_losses
    is_closed = closed and _is_closing(shape)
    slots: list[Slot] = []
    for name, member in shape.members.items():
        is_possible = member.goal is not None and (names is None or matches(names, name))
        if is_possible and not (is_closed and member.is_foreign):
            slots.append(Slot(name, member.goal, member.is_required))
        elif member.is_required:
            return None
    num_required = sum(slot.is_required for slot in slots)
    if shape.max_members is not None and num_required > shape.max_members:
        return None
    cells = _cells(shape, names, losses, closed=is_closed)
    return Plan(
        tuple(slots),
        cells,
        tuple(shape.members),
        shape.min_members,
        shape.max_members,
        frozenset(losses),
        is_closed,
        frozenset(_findings(shape.layers, _REPEATED) if any(c.names for c in cells) else ()),
    )


def _is_closing(shape: Object) -> bool:
    """Whether it declares keys, or patterns of keys, and says nothing of the others."""
    declares = any(layer.declares or layer.patterns for layer in shape.layers)
    return declares and all(layer.is_silent for layer in shape.layers)


def _names_regex(
    layers: tuple[Layer, ...], expander: Expander
) -> tuple[Regex | None, frozenset[Finding]]:
    """What `propertyNames` says of every key; None: nothing."""
    found: Regex | None = None
    losses: frozenset[Finding] = frozenset()
    for layer in layers:
        if layer.names == ANYTHING:
            continue
        choices = []
        for shape in expander.shapes(layer.names):
            if isinstance(shape, String):
                choices.append(string_regex(shape))
                losses |= shape.losses
        regex = syntax.alternatives(*choices)
        found = regex if found is None else syntax.both(found, regex)
    return found, losses


def _cells(
    shape: Object, names: Regex | None, losses: set[Finding], *, closed: bool
) -> tuple[Cell, ...]:
    """Free keys by which patterns they match; kinds without keys or values are left out."""
    patterns = list(dict.fromkeys(r for layer in shape.layers for r, _ in layer.patterns))
    combinations = _combinations(patterns)
    if combinations is None:
        losses |= _findings(shape.layers, "too many patterns overlap")
        return (Cell(names, ANYTHING),)
    if closed and not patterns:
        return ()
    if not patterns and names is None:
        goal = _goal_of(shape.layers, {})
        return () if goal is None else (Cell(None, goal),)
    free = syntax.complement(syntax.alternatives(*map(syntax.text, shape.members)))
    cells: list[Cell] = []
    for signs in combinations:
        goal = _goal_of(shape.layers, dict(zip(patterns, signs, strict=True)))
        if goal is None or (closed and not any(signs)):
            continue
        pairs = zip(patterns, signs, strict=True)
        parts = [pattern if sign else syntax.complement(pattern) for pattern, sign in pairs]
        parts += [] if names is None else [names]
        regex = syntax.both(*parts, free)
        if is_empty(regex) is not True:
            cells.append(Cell(regex, goal, _list_keys(regex)))
    if sum(len(cell.names or ()) for cell in cells) > MAX_NAMED:
        cells = [replace(cell, names=None) for cell in cells]
    # where there is always one more key, keys can be kept from coming twice
    if any(
        cell.regex and cell.names is None and can_always_grow(cell.regex) is not True
        for cell in cells
    ):
        losses |= _findings(shape.layers, _REPEATED)
    return tuple(cells)


@lru_cache(maxsize=512)
def _list_keys(regex: Regex) -> tuple[str, ...] | None:
    """All the keys that match, if they are few."""
    if can_always_grow(regex) is not False:
        return None
    found = words(regex, MAX_NAMED)
    return None if found is None else tuple(found)


def _findings(layers: tuple[Layer, ...], reason: str) -> set[Finding]:
    return {
        Finding(layer.pointer, keyword, reason)
        for layer in layers
        for keyword, is_there in (
            ("patternProperties", bool(layer.patterns)),
            ("propertyNames", layer.names != ANYTHING),
        )
        if is_there
    }


def _combinations(patterns: list[Regex]) -> list[tuple[bool, ...]] | None:
    """Which patterns may match one key together; None where that is too much to tell."""
    if len(patterns) <= 1:
        return list(product((True, False), repeat=len(patterns)))
    apart = all(
        are_disjoint(one, other) for index, one in enumerate(patterns) for other in patterns[:index]
    )
    if apart:
        alone = [tuple(i == j for j in range(len(patterns))) for i in range(len(patterns))]
        return [*alone, (False,) * len(patterns)]
    if len(patterns) > _MAX_OVERLAPPING:
        return None
    return list(product((True, False), repeat=len(patterns)))


def _goal_of(layers: tuple[Layer, ...], matched: dict[Regex, bool]) -> Goal:
    goal = ANYTHING
    for layer in layers:
        goals = [part for regex, part in layer.patterns if matched[regex]] or [layer.rest]
        for part in goals:
            goal = both(goal, part)
    return goal
