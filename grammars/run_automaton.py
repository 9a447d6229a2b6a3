"""Automata of runs: which bytes may stand first, and which ends of a run another hides.

An automaton may take more than its run does, never less: what is not held cheaply counts as any
text, and what is not decided soon as a loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TypeVar

from structspec.errors import GrammarError
from structspec.grammars import form
from structspec.grammars.form import AnyText, Either, Form, Pattern, Repeat, Text
from structspec.grammars.regexes import ranges, syntax
from structspec.grammars.regexes.derive import is_empty, transitions
from structspec.grammars.regexes.parse import parse_full
from structspec.grammars.regexes.syntax import Regex

_Name = TypeVar("_Name")
_MAX_PAIRS = 1000
_MAX_STATES = 200


@lru_cache(maxsize=512)
def run_regex(run: Form) -> Regex:
    """A regular form as one regex, or one that matches more."""
    match run:
        case Text():
            return syntax.text(run.text)
        case AnyText():
            excluded = syntax.alternatives(*map(syntax.text, run.excludes))
            return syntax.complement(syntax.sequence(syntax.ANYTHING, excluded, syntax.ANYTHING))
        case Pattern():
            try:
                return parse_full(run.pattern, run.dialect)
            except GrammarError:
                return syntax.ANYTHING  # refused where it is written
        case form.Sequence():
            return syntax.sequence(*map(run_regex, run.parts))
        case Either():
            return syntax.alternatives(*map(run_regex, run.parts))
        case Repeat():
            return syntax.repeat(run_regex(run.part), run.minimum, run.maximum)
        case _:
            raise AssertionError("no part of a run")


@lru_cache(maxsize=2048)
def first_bytes(regex: Regex) -> frozenset[int]:
    """The bytes, in UTF-8, that matches begin with."""
    result: set[int] = set()
    for class_, follower in _transitions(regex):
        if _is_live(follower):
            for low, high in class_:
                result.update(range(_lead(low), _lead(high) + 1))
    return frozenset(result)


def hides(reading_on: Regex, ending: Regex, following: frozenset[int]) -> bool:
    """Whether reading on in one run passes over an end of another (or the same).

    That is: some text of `ending`, with one of the `following` bytes behind it, is also the
    beginning of a text of `reading_on`. True too where that is not soon decided.
    """
    start = (ending, reading_on)
    seen, waiting = {start}, [start]
    while waiting:
        end, on = waiting.pop()
        if end.is_nullable and first_bytes(on) & following:
            return True
        for end_class, end_next in _transitions(end):
            for on_class, on_next in _transitions(on):
                pair = (end_next, on_next)
                if pair in seen or not ranges.intersect(end_class, on_class):
                    continue
                if _is_live(end_next) and _is_live(on_next):
                    seen.add(pair)
                    waiting.append(pair)
        if len(seen) > _MAX_PAIRS:
            return True
    return False


class Readings:
    """The runs that may be read in one place: which of them hide an end of a run.

    Mostly none does, and one look at all together tells: hundreds of keywords beside a name take
    hundreds of looks, not one for each pair. Else the culprits are found by halves.
    """

    def __init__(self, runs: Sequence[Form]) -> None:
        self._regexes = [run_regex(run) for run in runs]
        self._unions: dict[tuple[int, int], Regex] = {}

    def hiding(self, ending: Form, following: frozenset[int]) -> list[int]:
        """The numbers of the runs in which reading on passes over an end of `ending`."""
        found: list[int] = []
        end, waiting = run_regex(ending), [(0, len(self._regexes))]
        while waiting:
            low, high = waiting.pop()
            if low == high or not hides(self._union(low, high), end, following):
                continue
            if high - low == 1:
                found.append(low)
            else:
                middle = (low + high) // 2
                waiting += [(middle, high), (low, middle)]
        return found

    def _union(self, low: int, high: int) -> Regex:
        if (low, high) not in self._unions:
            self._unions[low, high] = syntax.alternatives(*self._regexes[low:high])
        return self._unions[low, high]


def maximal(groups: Iterable[frozenset[_Name]]) -> list[frozenset[_Name]]:
    """The groups that no other group holds whole."""
    kept: list[frozenset[_Name]] = []
    for group in sorted(set(groups), key=len, reverse=True):
        if not any(group <= larger for larger in kept):
            kept.append(group)
    return kept


@lru_cache(maxsize=4096)
def _transitions(regex: Regex) -> list[tuple[ranges.Ranges, Regex]]:
    return transitions(regex)


@lru_cache(maxsize=4096)
def _is_live(regex: Regex) -> bool:
    return is_empty(regex, _MAX_STATES) is not True


def _lead(code_point: int) -> int:
    """The first byte of a character."""
    if 0xD800 <= code_point <= 0xDFFF:
        return 0xED
    return chr(code_point).encode()[0]
