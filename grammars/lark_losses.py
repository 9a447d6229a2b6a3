"""Texts of a Lark grammar that llguidance loses because its terminals take all they can.

`A: /[a-z]+/` before `B: /[a-z]+[0-9]/` never leaves anything for B. Found where the terminals are
plain: literals, regexes, names and repetitions of them. Others are passed over.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field

from structspec.grammars.cfg import place
from structspec.grammars.form import Either, Form, Pattern, Repeat, Sequence, Text
from structspec.grammars.lark_checks import is_terminal, rules_in_use
from structspec.grammars.lark_reader import Atom, Body, Part, Repeated, Rule, read_rules
from structspec.grammars.run_automaton import Readings, first_bytes, maximal, run_regex


def find_losses(text: str) -> tuple[str, ...]:
    """A sentence for each pair of terminals of which one hides texts of the other."""
    rules = read_rules(text)
    places = _Places(rules)
    places.close()
    ends = {following: places.first_bytes(following) for following in places.followings()}
    found: dict[tuple[str, str], None] = {}
    for group in maximal(places.groups | {frozenset({name}) for name in places.follow}):
        rivals = [name for name in sorted(group) if places.forms.get(name) is not None]
        readings = Readings([form for name in rivals if (form := places.forms[name]) is not None])
        for name in rivals:
            form, following = places.forms[name], frozenset(places.follow[name])
            if form is not None and ends.get(following):
                for number in readings.hiding(form, ends[following]):
                    found[name, rivals[number]] = None
    return tuple(
        f"line {place(text, places.starts[name])[0]}: {_reason(name, rival)}"
        for name, rival in sorted(found)
    )


def _reason(name: str, rival: str) -> str:
    if name == rival:
        return f"{name} takes all that could be part of it, also where another terminal follows"
    return f"text that could be {name} or the beginning of {rival} is taken as the latter"


@dataclass(slots=True)
class _Places:
    """Which terminals may begin and follow each other, as least fixed points over the rules."""

    rules: dict[str, Rule]
    forms: dict[str, Form | None] = field(default_factory=dict)
    starts: dict[str, int] = field(default_factory=dict)
    nullable: set[str] = field(default_factory=set)
    first: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    last: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    follow: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    groups: set[frozenset[str]] = field(default_factory=set)  # of those that may stand in one place

    def close(self) -> None:
        """Repeat until nothing grows."""
        names = [rule for rule in rules_in_use(self.rules) if not is_terminal(rule.name)]
        size = -1
        while size != self._size():
            size = self._size()
            self.groups.clear()  # they have grown since
            for rule in names:
                is_nullable, first, last = self._body(rule.body)
                if is_nullable:
                    self.nullable.add(rule.name)
                self.first[rule.name] |= first
                self.last[rule.name] |= last
        # behind a terminal it is not told yet which of the rules that begin so it belongs to
        self.groups |= self.followings()

    def followings(self) -> set[frozenset[str]]:
        """The different sets of terminals that follow one."""
        return set(map(frozenset, self.follow.values()))

    def first_bytes(self, names: frozenset[str]) -> frozenset[int]:
        """The bytes that these terminals may begin with, as far as they are known."""
        forms = (self.forms.get(name) for name in names)
        known = (first_bytes(run_regex(form)) for form in forms if form is not None)
        return frozenset[int]().union(*known)

    def _size(self) -> int:
        tables = (self.first, self.last, self.follow)
        return len(self.nullable) + sum(len(s) for table in tables for s in table.values())

    def _body(self, body: Body) -> tuple[bool, set[str], set[str]]:
        rows = [self._row(row) for row in body.alternatives]
        first = set[str]().union(*(row[1] for row in rows))
        self.groups.add(frozenset(first))
        return any(row[0] for row in rows), first, set[str]().union(*(row[2] for row in rows))

    def _row(self, parts: tuple[Part, ...]) -> tuple[bool, set[str], set[str]]:
        is_nullable, first, last = True, set[str](), set[str]()
        for part in parts:
            part_nullable, part_first, part_last = self._part(part)
            self._join(last, part_first)
            first = first | part_first if is_nullable else first
            last = part_last | last if part_nullable else part_last
            is_nullable = is_nullable and part_nullable
        return is_nullable, first, last

    def _part(self, part: Part) -> tuple[bool, set[str], set[str]]:
        match part:
            case Body():
                return self._body(part)
            case Repeated():
                is_nullable, first, last = self._body(part.part)
                if part.maximum is None or part.maximum > 1:
                    self._join(last, first)
                return is_nullable or part.minimum == 0, first, last
            case Atom(kind="rule"):
                is_nullable = part.text in self.nullable
                return is_nullable, self.first[part.text], self.last[part.text]
            case Atom():
                self._add(part)
                return False, {part.text}, {part.text}

    def _join(self, last: set[str], first: set[str]) -> None:
        self.groups.add(frozenset(first))
        for name in last:
            self.follow[name] |= first

    def _add(self, atom: Atom) -> None:
        if atom.text not in self.forms:
            self.starts[atom.text] = atom.start
            self.forms[atom.text] = self._form(atom, frozenset())

    def _form(self, part: Part, inside: frozenset[str]) -> Form | None:
        """A terminal as a form; None where it is more than this module reads."""
        match part:
            case Atom(kind="text"):
                return plain_form(part.text)
            case Atom(kind="terminal") if part.text in self.rules and part.text not in inside:
                return self._form(self.rules[part.text].body, inside | {part.text})
            case Atom():
                return None
            case Repeated():
                form = self._form(part.part, inside)
                return None if form is None else Repeat(form, part.minimum, part.maximum)
            case Body():
                rows = [self._sequence(row, inside) for row in part.alternatives]
                known = tuple(row for row in rows if row is not None)
                return Either(known) if len(known) == len(rows) else None

    def _sequence(self, row: tuple[Part, ...], inside: frozenset[str]) -> Form | None:
        forms = [self._form(part, inside) for part in row]
        known = tuple(form for form in forms if form is not None)
        return Sequence(known) if len(known) == len(forms) else None


def plain_form(text: str) -> Form | None:
    """A literal or a regex without flags; None where it is more than this module reads."""
    if text.startswith("/"):
        if not text.endswith("/"):
            return None
        return Pattern(text[1:-1].replace(r"\/", "/"), dialect="rust")
    try:
        return Text(json.loads(text))
    except json.JSONDecodeError:
        return None
