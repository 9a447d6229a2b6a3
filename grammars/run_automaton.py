"""Automata of runs: which bytes may stand first, and which ends of a run another hides.

An automaton may take more than its run does, never less: what is not held cheaply counts as any
text, and what is not decided soon as a loss.
"""

from __future__ import annotations

from functools import lru_cache

from structspec.errors import GrammarError
from structspec.grammars.form import AnyText, Either, Form, Pattern, Repeat, Sequence, Text
from structspec.grammars.regexes import ranges, syntax
from structspec.grammars.regexes.derive import is_empty, transitions
from structspec.grammars.regexes.parse import parse_full
from structspec.grammars.regexes.syntax import Regex

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
        case Sequence():
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
    for class_, follower in transitions(regex):
        if _is_live(follower):
            for low, high in class_:
                result.update(range(_lead(low), _lead(high) + 1))
    return frozenset(result)


def hides(reading_on: Form, ending: Form, following: frozenset[int]) -> bool:
    """Whether reading on in one run passes over an end of another (or the same).

    That is: some text of `ending`, with one of the `following` bytes behind it, is also the
    beginning of a text of `reading_on`. True too where that is not soon decided.
    """
    start = (run_regex(ending), run_regex(reading_on))
    seen, waiting = {start}, [start]
    while waiting:
        end, on = waiting.pop()
        if end.is_nullable and first_bytes(on) & following:
            return True
        for end_class, end_next in transitions(end):
            for on_class, on_next in transitions(on):
                pair = (end_next, on_next)
                if pair in seen or not ranges.intersect(end_class, on_class):
                    continue
                if _is_live(end_next) and _is_live(on_next):
                    seen.add(pair)
                    waiting.append(pair)
        if len(seen) > _MAX_PAIRS:
            return True
    return False


@lru_cache(maxsize=4096)
def _is_live(regex: Regex) -> bool:
    return is_empty(regex, _MAX_STATES) is not True


def _lead(code_point: int) -> int:
    """The first byte of a character."""
    if 0xD800 <= code_point <= 0xDFFF:
        return 0xED
    return chr(code_point).encode()[0]
