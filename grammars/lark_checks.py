"""What is wrong with a Lark grammar that llguidance would take: rules that no text ends."""

from __future__ import annotations

from collections.abc import Collection

from structspec.errors import GrammarError
from structspec.grammars.cfg import place
from structspec.grammars.lark_reader import Atom, Body, Part, Repeated, Rule, read_rules

START = "start"


def check_productive(text: str) -> None:
    """Raise GrammarError, with its place, for a rule in use that has no finite text."""
    rules = {name: rule for name, rule in read_rules(text).items() if not is_terminal(name)}
    finite: set[str] = set()
    has_grown = True
    while has_grown:
        grown = {
            name
            for name, rule in rules.items()
            if name not in finite and _is_finite(rule.body, rules.keys(), finite)
        }
        has_grown = bool(grown)
        finite |= grown
    for rule in rules_in_use(rules):
        if rule.name not in finite:
            line, column = place(text, rule.start)
            raise GrammarError(
                f"no text ends the rule {rule.name!r}: it recurses for ever",
                line=line,
                column=column,
            )


def is_terminal(name: str) -> bool:
    return name.lstrip("_")[:1].isupper()


def _is_finite(body: Body, names: Collection[str], finite: set[str]) -> bool:
    """Whether one alternative has only parts that end; unknown names are llguidance's to refuse."""
    return any(
        all(_part_is_finite(part, names, finite) for part in row) for row in body.alternatives
    )


def _part_is_finite(part: Part, names: Collection[str], finite: set[str]) -> bool:
    match part:
        case Atom():
            return part.kind != "rule" or part.text not in names or part.text in finite
        case Repeated():
            return part.minimum == 0 or _is_finite(part.part, names, finite)
        case Body():
            return _is_finite(part, names, finite)


def rules_in_use(rules: dict[str, Rule]) -> list[Rule]:
    """The rules that can be reached from `start`, in the order of the text."""
    reached: set[str] = set()
    waiting = [START]
    while waiting:
        name = waiting.pop()
        if name in rules and name not in reached:
            reached.add(name)
            waiting += _names(rules[name].body)
    return [rule for name, rule in rules.items() if name in reached]


def _names(body: Body) -> list[str]:
    names: list[str] = []
    for row in body.alternatives:
        for part in row:
            match part:
                case Atom():
                    names += [part.text] if part.kind == "rule" else []
                case Repeated():
                    names += _names(part.part)
                case Body():
                    names += _names(part)
    return names
