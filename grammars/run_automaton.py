"""Automata of runs: which bytes may stand first, and which may lengthen a text that could end.

An automaton may take more than its run does, never less: what it cannot hold cheaply (a long
count, a regex that interegular does not read) counts as any text.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import lru_cache

import interegular
from interegular.fsm import FSM, Alphabet, anything_else

from structspec.grammars.form import AnyText, Either, Form, Pattern, Repeat, Sequence, Text

_MAX_COUNT = 8
_LONG_COUNT = re.compile(r"\{(\d*),?(\d*)\}")
_LEAD_BYTES = frozenset(range(0x80, 0x100))


class RunAutomaton:
    """The automaton of one run, with the states from which a text can still end."""

    def __init__(self, machine: FSM) -> None:
        self._machine = machine
        self._live = _live_states(machine)

    @property
    def is_nullable(self) -> bool:
        """Whether the run may be empty."""
        return self._machine.initial in self._machine.finals

    def first_bytes(self) -> frozenset[int]:
        """The bytes its texts begin with."""
        return self._bytes_after(self._machine.initial)

    def blocks(self, other: RunAutomaton, following: frozenset[int]) -> bool:
        """Whether reading on here hides an end of `other`.

        That is: some text of `other`, with one of the `following` bytes behind it, is also the
        beginning of a text of this run.
        """
        start = (other._machine.initial, self._machine.initial)
        seen, waiting = {start}, [start]
        alphabet, (to_other, to_own) = other._machine.alphabet.union(self._machine.alphabet)
        while waiting:
            theirs, own = waiting.pop()
            if theirs in other._machine.finals and self._bytes_after(own) & following:
                return True
            for key in alphabet.by_transition:
                pair = (
                    other._machine.map.get(theirs, {}).get(to_other[key]),
                    self._machine.map.get(own, {}).get(to_own[key]),
                )
                if pair[0] in other._live and pair[1] in self._live and pair not in seen:
                    seen.add(pair)
                    waiting.append(pair)
        return False

    def _bytes_after(self, state: int) -> frozenset[int]:
        result: set[int] = set()
        for key, target in self._machine.map.get(state, {}).items():
            if target in self._live:
                result |= _first_bytes(self._machine.alphabet, key)
        return frozenset(result)


@lru_cache(maxsize=256)
def automaton(run: Form) -> RunAutomaton:
    """The automaton of a regular form."""
    return RunAutomaton(_machine(run))


def _machine(run: Form) -> FSM:
    match run:
        case Text():
            return _text_machine(run.text)
        case AnyText():
            return _without(run.excludes)
        case Pattern():
            return _pattern_machine(run.pattern)
        case Sequence():
            return FSM.concatenate(*map(_machine, run.parts)) if run.parts else _text_machine("")
        case Either():
            return FSM.union(*map(_machine, run.parts))
        case Repeat():
            return _repeated(_machine(run.part), run.minimum, run.maximum)
        case _:
            raise AssertionError("no part of a run")


def _text_machine(text: str) -> FSM:
    alphabet = _alphabet(set(text))
    states = range(len(text) + 1)
    steps = {i: {alphabet[character]: i + 1} for i, character in enumerate(text)}
    return FSM(
        alphabet=alphabet,
        states=set(states),
        initial=0,
        finals={len(text)},
        map={**{i: {} for i in states}, **steps},
    )


def _without(excludes: tuple[str, ...]) -> FSM:
    """Any text that none of the strings occurs in: how far each has come is the state."""
    alphabet = _alphabet(set("".join(excludes)))
    prefixes = sorted({text[:i] for text in excludes for i in range(len(text))} | {""}, key=len)
    number = {prefix: i for i, prefix in enumerate(prefixes)}
    steps: dict[int, dict[int, int]] = defaultdict(dict)
    for prefix in prefixes:
        for symbol, key in alphabet.items():
            text = "" if symbol is anything_else else prefix + symbol
            if not any(text.endswith(exclude) for exclude in excludes):
                longest = next(text[i:] for i in range(len(text) + 1) if text[i:] in number)
                steps[number[prefix]][key] = number[longest]
    states = set(number.values())
    return FSM(
        alphabet=alphabet,
        states=states,
        initial=0,
        finals=states,
        map={state: steps[state] for state in states},
    )


def _pattern_machine(pattern: str) -> FSM:
    counts = [int(n) for pair in _LONG_COUNT.findall(pattern) for n in pair if n]
    if max(counts, default=0) > 4 * _MAX_COUNT:
        return _without(())
    try:
        return interegular.parse_pattern(pattern).to_fsm()
    except (interegular.InvalidSyntax, interegular.Unsupported):
        return _without(())


def _repeated(part: FSM, minimum: int, maximum: int | None) -> FSM:
    if maximum is None or maximum > _MAX_COUNT:
        return part.star() if minimum == 0 else FSM.concatenate(part, part.star())
    counts = [part.times(n) if n else _text_machine("") for n in range(minimum, maximum + 1)]
    return counts[0] if len(counts) == 1 else FSM.union(*counts)


def _alphabet(characters: set[str]) -> Alphabet:
    return Alphabet.from_groups(*({c} for c in sorted(characters)), {anything_else})


def _first_bytes(alphabet: Alphabet, key: int) -> frozenset[int]:
    """The first bytes, in UTF-8, of the characters of one transition."""
    result: set[int] = set()
    for symbol in alphabet.by_transition[key]:
        if symbol is anything_else:
            named = {ord(c) for c in alphabet if c is not anything_else and c.isascii()}
            result |= _LEAD_BYTES | (set(range(0x80)) - named)
        else:
            result.add(symbol.encode("utf-8", "surrogatepass")[0])
    return frozenset(result)


def _live_states(machine: FSM) -> frozenset[int]:
    sources: dict[int, set[int]] = defaultdict(set)
    for state, steps in machine.map.items():
        for target in steps.values():
            sources[target].add(state)
    live, waiting = set(machine.finals), list(machine.finals)
    while waiting:
        for state in sources[waiting.pop()] - live:
            live.add(state)
            waiting.append(state)
    return frozenset(live)
