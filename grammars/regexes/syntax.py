"""Regular expressions as values: what a pattern, a format or a length bound means.

Nodes come from the constructor functions (`characters`, `sequence`, `alternatives`, `repeat`,
`both`, `complement`), which simplify as they build. Equal nodes are one object, so `==` is `is`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from threading import Lock
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from structspec.grammars.regexes import ranges
from structspec.grammars.regexes.ranges import Ranges


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Characters:
    """One character out of `ranges`: sorted, disjoint, without surrogates; none is NOTHING."""

    ranges: Ranges
    is_nullable: bool = False
    is_plain: bool = True


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Empty:
    """The empty word alone."""

    is_nullable: bool = True
    is_plain: bool = True


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Sequence:
    """`first` and then `rest`; `first` is never a Sequence."""

    first: Regex
    rest: Regex
    is_nullable: bool
    is_plain: bool


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Alternatives:
    """Any one of `items`, at least two, of which at most one is Characters."""

    items: tuple[Regex, ...]
    is_nullable: bool
    is_plain: bool


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Repeat:
    """`item` from `minimum` to `maximum` (None: any number of) times."""

    item: Regex
    minimum: int
    maximum: int | None
    is_nullable: bool
    is_plain: bool


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class And:
    """What every one of `items` matches."""

    items: tuple[Regex, ...]
    is_nullable: bool
    is_plain: bool = False


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Not:
    """Every text that `item` does not match."""

    item: Regex
    is_nullable: bool
    is_plain: bool = False


# `is_nullable`: the empty word matches. `is_plain`: neither And nor Not inside.
Regex = Characters | Empty | Sequence | Alternatives | Repeat | And | Not

_Node = TypeVar("_Node", bound=Regex)
_NODES: WeakValueDictionary[tuple[Any, ...], Any] = WeakValueDictionary()
_LOCK = Lock()


def _interned(kind: Callable[..., _Node], key: object, *fields: object) -> _Node:
    """The one node of this kind and key."""
    with _LOCK:
        node: _Node | None = _NODES.get((kind, key))
        if node is None:
            node = _NODES[kind, key] = kind(*fields)
    return node


def characters(pairs: Ranges) -> Characters:
    """One character out of sorted, disjoint ranges."""
    return _interned(Characters, pairs, pairs)


EMPTY = Empty()
NOTHING = characters(())
ANY_CHARACTER = characters(ranges.EVERY)
ANYTHING = _interned(Repeat, (ANY_CHARACTER, 0, None), ANY_CHARACTER, 0, None, True, True)
SOMETHING = _interned(Repeat, (ANY_CHARACTER, 1, None), ANY_CHARACTER, 1, None, False, True)


def text(literal: str) -> Regex:
    """Exactly this text."""
    return sequence(*(characters(((ord(c), ord(c)),)) for c in literal))


def parts(regex: Regex) -> Iterator[Regex]:
    """The items of a sequence one after the other; any other node alone."""
    while isinstance(regex, Sequence):
        yield regex.first
        regex = regex.rest
    if regex is not EMPTY:
        yield regex


def sequence(*items: Regex) -> Regex:
    """One after the other."""
    result: Regex = EMPTY
    for item in reversed(items):
        if isinstance(item, Sequence) and result is not EMPTY:
            for part in reversed(tuple(parts(item))):
                result = _prepend(part, result)
        else:
            result = _prepend(item, result)
    return result


def _prepend(first: Regex, rest: Regex) -> Regex:
    if first is NOTHING or rest is NOTHING:
        return NOTHING
    if first is EMPTY:
        return rest
    if rest is EMPTY:
        return first
    follower, tail = (rest.first, rest.rest) if isinstance(rest, Sequence) else (rest, EMPTY)
    merged = _merge_repeats(first, follower)
    if merged is not None:
        return _prepend(merged, tail)
    is_plain = first.is_plain and rest.is_plain
    nullable = first.is_nullable and rest.is_nullable
    return _interned(Sequence, (first, rest), first, rest, nullable, is_plain)


def _merge_repeats(a: Regex, b: Regex) -> Regex | None:
    """The one repetition that two neighbours of the same item are; None where they are not."""
    if not isinstance(a, Repeat) and not isinstance(b, Repeat):
        return None
    item, low, high = _as_repeat(a, b)
    other, low_2, high_2 = _as_repeat(b, a)
    if item is not other:
        return None
    return repeat(item, low + low_2, None if high is None or high_2 is None else high + high_2)


def _as_repeat(node: Regex, neighbour: Regex) -> tuple[Regex, int, int | None]:
    """A node as a repetition; itself once where the neighbour repeats it."""
    if isinstance(node, Repeat) and not (isinstance(neighbour, Repeat) and neighbour.item is node):
        return node.item, node.minimum, node.maximum
    return node, 1, 1


def alternatives(*items: Regex) -> Regex:
    """Any one of them."""
    found: dict[Regex, None] = {}
    single: Ranges = ()
    has_empty = False
    pending = list(reversed(items))
    while pending:
        item = pending.pop()
        if item is ANYTHING:
            return ANYTHING
        if isinstance(item, Characters):
            single = ranges.union(single, item.ranges) if single else item.ranges
        elif item is EMPTY:
            has_empty = True
        elif isinstance(item, Alternatives):
            pending.extend(reversed(item.items))
        elif isinstance(item, Repeat) and (item.minimum, item.maximum) == (0, 1):
            has_empty = True
            pending.append(item.item)
        else:
            found[item] = None
    choices = ((characters(single),) if single else ()) + tuple(found)
    return _optional(choices) if has_empty else _alternatives(choices)


def _optional(choices: tuple[Regex, ...]) -> Regex:
    choice = _alternatives(choices)
    if choice is NOTHING:
        return EMPTY
    return choice if choice.is_nullable else repeat(choice, 0, 1)


def _alternatives(choices: tuple[Regex, ...]) -> Regex:
    if not choices:
        return NOTHING
    if len(choices) == 1:
        return choices[0]
    if any(isinstance(item, Not) and item.item in choices for item in choices):
        return ANYTHING
    nullable = any(item.is_nullable for item in choices)
    is_plain = all(item.is_plain for item in choices)
    return _interned(Alternatives, frozenset(choices), choices, nullable, is_plain)


def repeat(item: Regex, minimum: int, maximum: int | None) -> Regex:
    """`item` from `minimum` to `maximum` (None: any number of) times."""
    assert minimum >= 0 and (maximum is None or minimum <= maximum)
    if maximum == 0 or item is EMPTY or (item is NOTHING and minimum == 0):
        return EMPTY
    if item is NOTHING or (minimum, maximum) == (1, 1):
        return item
    if item.is_nullable:
        minimum = 0
    if isinstance(item, Repeat):
        if item.maximum is None and item.minimum <= 1:
            return repeat(item.item, minimum * item.minimum, None)
        if item.maximum == 1 or (maximum is None and item.minimum <= 1):
            return repeat(item.item, minimum * item.minimum, maximum)
    nullable = minimum == 0
    return _interned(
        Repeat, (item, minimum, maximum), item, minimum, maximum, nullable, item.is_plain
    )


def both(*items: Regex) -> Regex:
    """What all of them match."""
    found: dict[Regex, None] = {}
    pending = list(reversed(items))
    while pending:
        item = pending.pop()
        if isinstance(item, And):
            pending.extend(reversed(item.items))
        elif item is not ANYTHING:
            found[item] = None
    choices = tuple(found)
    if len(choices) < 2:
        return choices[0] if choices else ANYTHING
    nullable = all(item.is_nullable for item in choices)
    if any(map(_is_short, choices)):
        singles = [single_characters(item) for item in choices]
        single = characters(reduce(ranges.intersect, singles))
        return alternatives(EMPTY, single) if nullable else single
    if any(isinstance(item, Not) and item.item in found for item in choices):
        return NOTHING
    return _interned(And, frozenset(choices), choices, nullable)


def _is_short(regex: Regex) -> bool:
    """Whether nothing longer than one character matches, as the shape shows."""
    if isinstance(regex, Repeat):
        return regex.maximum == 1 and isinstance(regex.item, Characters)
    return isinstance(regex, Characters | Empty)


def single_characters(regex: Regex) -> Ranges:
    """The matches of one character."""
    match regex:
        case Empty():
            return ()
        case Characters(pairs):
            return pairs
        case Sequence():
            return _single_characters_of_sequence(regex)
        case Alternatives(items):
            return reduce(ranges.union, map(single_characters, items))
        case Repeat(item, minimum):
            return single_characters(item) if minimum <= 1 else ()
        case And(items):
            return reduce(ranges.intersect, map(single_characters, items))
        case Not(item):
            return ranges.invert(single_characters(item))


def _single_characters_of_sequence(regex: Sequence) -> Ranges:
    items = tuple(parts(regex))
    needed = [item for item in items if not item.is_nullable]
    if len(needed) > 1:
        return ()
    return reduce(ranges.union, map(single_characters, needed or items))


_OPPOSITES: dict[Regex, Regex] = {
    NOTHING: ANYTHING,
    ANYTHING: NOTHING,
    EMPTY: SOMETHING,
    SOMETHING: EMPTY,
}


def complement(item: Regex) -> Regex:
    """Every text that `item` does not match."""
    if item in _OPPOSITES:
        return _OPPOSITES[item]
    if isinstance(item, Not):
        return item.item
    return _interned(Not, item, item, not item.is_nullable)
