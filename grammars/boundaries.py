"""Where reading the longest lexeme loses a text that a form allows.

A form is a regular expression over runs, JSON and grammars, so the leaves that may stand in one
place are known: those that can begin it, and for each leaf those that can follow it. A text is
lost where one of them could end, the next begins, and another (or itself) reads on instead.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from structspec.grammars.form import (
    Cfg,
    Either,
    Form,
    Json,
    Marker,
    Repeat,
    Sequence,
    is_regular,
)
from structspec.grammars.run_automaton import Readings, first_bytes, maximal, run_regex

_ALL_BYTES = frozenset(range(256))
_JSON_STARTS = {
    "object": b"{",
    "array": b"[",
    "string": b'"',
    "number": b"-0123456789",
    "integer": b"-0123456789",
    "boolean": b"tf",
    "null": b"n",
}
_NUMBER_GOES_ON = frozenset(b"0123456789.eE+-")


@dataclass(frozen=True, slots=True)
class Loss:
    """Texts that cannot be written: where, and why."""

    pointer: str
    reason: str


@dataclass(slots=True)
class _Places:
    """The leaves that may begin, end and follow each other; numbers index `leaves`."""

    leaves: list[Form] = field(default_factory=list)
    follow: list[set[int]] = field(default_factory=list)

    def visit(self, form: Form) -> tuple[bool, set[int], set[int]]:
        """Whether the form may be empty, and the leaves it may begin and end with."""
        match form:
            case Sequence() if not is_regular(form):
                return self._row(form.parts)
            case Either() if not is_regular(form):
                visited = [self.visit(part) for part in form.parts]
                return (
                    any(is_nullable for is_nullable, _, _ in visited),
                    set().union(*(first for _, first, _ in visited)),
                    set().union(*(last for _, _, last in visited)),
                )
            case Repeat() if not is_regular(form):
                is_nullable, first, last = self.visit(form.part)
                if form.maximum is None or form.maximum > 1:
                    self._join(last, first)
                return is_nullable or form.minimum == 0, first, last
            case _:
                self.leaves.append(form)
                self.follow.append(set())
                number = {len(self.leaves) - 1}
                return _is_nullable(form), number, set(number)

    def _row(self, parts: tuple[Form, ...]) -> tuple[bool, set[int], set[int]]:
        row: tuple[bool, set[int], set[int]] = (True, set(), set())
        for part in parts:
            is_nullable, first, last = self.visit(part)
            self._join(row[2], first)
            row = (
                row[0] and is_nullable,
                row[1] | (first if row[0] else set()),
                last | (row[2] if is_nullable else set()),
            )
        return row

    def _join(self, last: set[int], first: set[int]) -> None:
        for number in last:
            self.follow[number] |= first


@lru_cache(maxsize=64)  # asked for by the router and by the lowering
def find_losses(form: Form) -> tuple[Loss, ...]:
    """What of a grouped form cannot be written when lexemes are read as long as possible."""
    places = _Places()
    _, first, _ = places.visit(form)
    together = {frozenset(first), *map(frozenset, places.follow)}
    return tuple(dict.fromkeys(_losses(places, together)))


def _losses(places: _Places, together: set[frozenset[int]]) -> Iterator[Loss]:
    leaves = places.leaves
    followings = list(map(frozenset, places.follow))
    firsts, is_run = list(map(_first, leaves)), list(map(is_regular, leaves))
    ends = {
        following: frozenset[int]().union(*(firsts[number] for number in following))
        for following in set(followings)
    }
    found: set[tuple[int, int]] = set()
    for group in maximal(together):
        regular = [number for number in sorted(group) if is_run[number]]
        readings = Readings([leaves[number] for number in regular])
        for number in group:
            rivals, end = group, ends[followings[number]]
            if end and is_run[number]:
                rivals = group.difference(regular)
                found.update((number, regular[i]) for i in readings.hiding(leaves[number], end))
            found.update(
                (number, rival)
                for rival in rivals
                if end and _hides(leaves[number], leaves[rival], end, is_same=rival == number)
            )
    for number, rival in sorted(found):
        yield Loss(leaves[number].pointer, _reason(leaves[number], leaves[rival], number == rival))


def _reason(leaf: Form, rival: Form, is_same: bool) -> str:
    if is_same:
        return "text that could be part of this or of what follows is always taken as part of this"
    place = rival.pointer or "the whole"
    return f"text that could be this and what follows, or part of {place}, is taken as the latter"


def _hides(leaf: Form, rival: Form, following: frozenset[int], *, is_same: bool) -> bool:
    """Whether an end of `leaf` may be passed over because `rival` reads on; not both are runs."""
    if isinstance(leaf, Marker) or isinstance(rival, Marker):
        return False  # a token of its own, no text
    if is_same:
        return bool(_goes_on(leaf) & following)
    if isinstance(leaf, Json) and isinstance(rival, Json):
        return False  # both end where the value does
    return bool(_first(leaf) & _first(rival))


def _is_nullable(leaf: Form) -> bool:
    return run_regex(leaf).is_nullable if is_regular(leaf) else isinstance(leaf, Cfg)


def _first(leaf: Form) -> frozenset[int]:
    """The bytes a leaf may begin with, or more."""
    if isinstance(leaf, Json):
        return frozenset(b"".join(_JSON_STARTS[name] for name in _types(leaf)))
    if isinstance(leaf, Cfg):
        return _ALL_BYTES
    if isinstance(leaf, Marker):
        return frozenset({0xFF})  # in no text
    return first_bytes(run_regex(leaf))


def _goes_on(leaf: Form) -> frozenset[int]:
    """The bytes that JSON or a grammar may go on with where it could end, or more."""
    if isinstance(leaf, Json):
        return _NUMBER_GOES_ON if {"number", "integer"} & set(_types(leaf)) else frozenset()
    return _ALL_BYTES


@lru_cache(maxsize=512)  # asked for by every neighbour
def _types(leaf: Json) -> list[str]:
    """The types a schema's values may have, as far as its own `type` tells."""
    schema = json.loads(leaf.constraint.text)
    named = schema.get("type") if isinstance(schema, dict) else None
    names = [named] if isinstance(named, str) else named if isinstance(named, list) else []
    return [name for name in names if name in _JSON_STARTS] or list(_JSON_STARTS)
