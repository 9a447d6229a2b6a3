"""Whether a grammar in xgrammar's printed EBNF has any finite text, and is one it can hold."""

from __future__ import annotations

import re
import sys

_RULE = re.compile(r"^([^\s\[]+)(?:\[[^\]]*\])? ::= (.*)$")
# free text up to a tag, over several lines: may always be empty
_FREE_TEXT = re.compile(
    r'TagDispatch\((?:"(?:\\.|[^"\\])*"|\((?:"(?:\\.|[^"\\])*"|[^")])*\)|[^"()])*\)'
)
_PIECE = re.compile(
    r'Regex\((?:"(?:\\.|[^"\\])*"|[^")])*\)|"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|(?P<lookahead>\(=.*)$|(?P<name>[\w.-]+)|(?P<mark>[()|])'
    r"|(?P<repeat>\{\d+(?:, ?-?\d*)?\}|[*+?])"
)

_ALONE = re.compile(r"\(\((?P<name>[\w.-]+)(?P<count>\{[\d, -]+\})?\)\)(?: \(=.*)?$")

_CLASS_CHARACTER = r"\\x[0-9a-f]{2}|\\u[0-9a-f]{4}|\\U[0-9a-f]{8}|\\.|[^\\]"
_CLASS_RANGE = re.compile(rf"({_CLASS_CHARACTER})(?:-({_CLASS_CHARACTER}))?", re.DOTALL)
_CONTROLS = {"0": 0, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13}
_SURROGATES = (0xD800, 0xDFFF)  # no text has them


def is_productive(grammar: str) -> bool:
    """Whether `root` derives a finite text."""
    return "root" not in unproductive(grammar)


def unproductive(grammar: str) -> tuple[str, ...]:
    """The rules in use that derive no finite text: all but the least fixed point."""
    matches = (_RULE.match(line) for line in _FREE_TEXT.sub('""', grammar).split("\n"))
    rules = {match[1]: match[2] for match in matches if match}
    finite: set[str] = set()
    has_grown = True
    while has_grown:
        waiting = rules.keys() - finite
        grown = {name for name in waiting if _Body(rules[name], finite).is_finite()}
        has_grown = bool(grown)
        finite |= grown
    return tuple(name for name in _in_use(rules) if name not in finite)


def repeats_of_themselves(grammar: str) -> tuple[str, ...]:
    """The rules, in use or not, that are nothing but a count of themselves: xgrammar crashes.

    Also where that leads through other rules: `x ::= y{2}` with `y ::= x`.
    """
    matches = (_RULE.match(line) for line in _FREE_TEXT.sub('""', grammar).split("\n"))
    alone = {match[1]: _ALONE.match(match[2]) for match in matches if match}
    found: list[str] = []
    for name in alone:
        seen: set[str] = set()
        is_counted, part = False, alone[name]
        while part is not None and part["name"] not in seen:
            seen.add(part["name"])
            is_counted = is_counted or part["count"] is not None
            part = alone.get(part["name"])
        if is_counted and name in seen:
            found.append(name)
    return tuple(found)


def _in_use(rules: dict[str, str]) -> list[str]:
    """The rules that can be reached from `root`, and `root` itself."""
    reached: dict[str, None] = {}
    waiting = ["root"]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached[name] = None
            named = (match["name"] for match in _PIECE.finditer(rules.get(name, "")))
            waiting += (other for other in named if other in rules)
    return list(reached)


def _has_text(piece: str) -> bool:
    """Whether a literal or class has a text; a class that excludes every character has none."""
    if not piece.startswith("[^"):
        return piece != "[]"
    ranges = [
        (_code_point(first), _code_point(last or first))
        for first, last in _CLASS_RANGE.findall(piece[2:-1])
    ]
    covered = 0  # every character below is excluded
    for first, last in sorted([*ranges, _SURROGATES]):
        if first > covered:
            return True
        covered = max(covered, last + 1)
    return covered <= sys.maxunicode


def _code_point(character: str) -> int:
    if not character.startswith("\\"):
        return ord(character)
    if len(character) > 2:
        return int(character[2:], 16)
    return _CONTROLS.get(character[1], ord(character[1]))


class _Body:
    """One rule's right side, read by recursive descent: alternatives of sequences."""

    def __init__(self, body: str, finite: set[str]) -> None:
        self._pieces = [match for match in _PIECE.finditer(body) if match["lookahead"] is None]
        self._finite = finite
        self._next = 0

    def is_finite(self) -> bool:
        """Whether one alternative has only finite parts."""
        result = self._sequence()
        while self._take("|"):
            result = self._sequence() or result
        return result

    def _sequence(self) -> bool:
        result = True
        while self._next < len(self._pieces):
            piece = self._pieces[self._next]
            if piece["mark"] in ("|", ")"):
                break
            self._next += 1
            if piece["mark"] == "(":
                part = self.is_finite()
                self._take(")")
            else:
                part = (
                    _has_text(piece[0]) if piece["name"] is None else piece["name"] in self._finite
                )
            result = result and (self._may_be_absent() or part)
        return result

    def _may_be_absent(self) -> bool:
        if self._next == len(self._pieces) or self._pieces[self._next]["repeat"] is None:
            return False
        repeat = self._pieces[self._next]["repeat"]
        self._next += 1
        return repeat[0] in "*?" or repeat.startswith("{0")

    def _take(self, mark: str) -> bool:
        is_there = self._next < len(self._pieces) and self._pieces[self._next]["mark"] == mark
        self._next += is_there
        return is_there
