"""A pattern as it was written: the tree between its text and the regex it means."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from structspec.grammars.regexes import syntax
from structspec.grammars.regexes.syntax import ANY_CHARACTER, EMPTY, Regex


@dataclass(frozen=True, slots=True)
class Plain:
    """A part that looks at nothing around it."""

    regex: Regex


@dataclass(frozen=True, slots=True)
class Join:
    """One after the other."""

    items: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """Any one of them."""

    branches: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """Again and again; `position` is where the pattern says so."""

    item: Pattern
    minimum: int
    maximum: int | None
    position: int


@dataclass(frozen=True, slots=True)
class Look:
    """A condition on the text behind this place, or on that before it."""

    body: Pattern
    is_ahead: bool
    is_negative: bool
    position: int


@dataclass(frozen=True, slots=True)
class Refused:
    """Well formed, but no finite automaton holds it: `what` names it."""

    what: str
    position: int


Pattern = Plain | Join | Choice | Loop | Look | Refused

NO_TEXT = Plain(EMPTY)


def join(items: Iterable[Pattern]) -> Pattern:
    """One after the other, as simple as it can be."""
    flat = [part for item in items for part in (item.items if isinstance(item, Join) else (item,))]
    regexes = [item.regex for item in flat if isinstance(item, Plain)]
    if len(regexes) < len(flat):
        return Join(tuple(flat))
    return Plain(syntax.sequence(*regexes)) if regexes else NO_TEXT


def choose(branches: Sequence[Pattern]) -> Pattern:
    """Any one of them, as simple as it can be."""
    if len(branches) == 1:
        return branches[0]
    regexes = [branch.regex for branch in branches if isinstance(branch, Plain)]
    if len(regexes) < len(branches):
        return Choice(tuple(branches))
    return Plain(syntax.alternatives(*regexes))


def loop(item: Pattern, minimum: int, maximum: int | None, position: int) -> Pattern:
    """Again and again, as simple as it can be."""
    if isinstance(item, Plain):
        return Plain(syntax.repeat(item.regex, minimum, maximum))
    return Loop(item, minimum, maximum, position)


def not_next(regex: Regex, position: int) -> Look:
    """The character behind this place, if there is one, is none of these."""
    return Look(Plain(regex), True, True, position)


def not_last(regex: Regex, position: int) -> Look:
    """The character before this place, if there is one, is none of these."""
    return Look(Plain(regex), False, True, position)


def start(position: int) -> Look:
    """The start of the text."""
    return not_last(ANY_CHARACTER, position)


def end(position: int) -> Look:
    """The end of the text."""
    return not_next(ANY_CHARACTER, position)


def boundary(word: Regex, is_negative: bool, position: int) -> Pattern:
    r"""`\b`, or with `is_negative` `\B`: exactly one neighbour is in `word`, or not."""
    last, next_ = (Look(Plain(word), side, False, position) for side in (False, True))
    no_last, no_next = not_last(word, position), not_next(word, position)
    if is_negative:
        return Choice((Join((last, next_)), Join((no_last, no_next))))
    return Choice((Join((last, no_next)), Join((no_last, next_))))


def walk(tree: Pattern, *, enters_looks: bool = True) -> Iterator[Pattern]:
    """Every node of a tree; else without those inside conditions, which take no text."""
    pending = [tree]
    while pending:
        node = pending.pop()
        yield node
        match node:
            case Join(items):
                pending.extend(items)
            case Choice(branches):
                pending.extend(branches)
            case Loop(item):
                pending.append(item)
            case Look(item) if enters_looks:
                pending.append(item)
            case _:
                pass
