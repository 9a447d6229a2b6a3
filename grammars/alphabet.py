"""The bytes that texts of a constraint are made of.

[a-z ]{9}   ->  a to z and the blank
é|e         ->  0xC3 0xA9 0x65: bytes of UTF-8

They may be more than that, never fewer: conditions on text, and what of a pattern excludes another,
are not looked at.
"""

from __future__ import annotations

import re

from structspec.constraint import Choice, Constraint, Grammar, Regex
from structspec.errors import GrammarError
from structspec.grammars.cfg import dialect_of
from structspec.grammars.form import Pattern, Text
from structspec.grammars.lark_losses import plain_form
from structspec.grammars.lark_reader import Token, tokens_of
from structspec.grammars.regexes import ranges, syntax
from structspec.grammars.regexes.pattern import Plain, Refused, walk
from structspec.grammars.regexes.ranges import Ranges
from structspec.grammars.regexes.reader import Dialect, read

_ENCODED = ((0, 0x7F), (0x80, 0x7FF), (0x800, 0xFFFF), (0x10000, ranges.MAX_CODE_POINT))
_CONTINUATIONS = range(0x80, 0xC0)
# what is written between the names and texts of Lark rules and takes nothing away from them
_LARK_MARK = re.compile(r"->|\.-?\d+|[():|&\[\]*+?=,\d]")


def alphabet_of(constraint: Constraint) -> frozenset[int] | None:
    """The bytes that a valid text may hold, or more; None: nobody knows, so it may hold any.

    Takes time in proportion to the constraint's length.
    """
    try:
        match constraint:
            case Regex():
                return _of_pattern(constraint.pattern, "python")
            case Choice():
                return frozenset("".join(constraint.choices).encode())
            case Grammar() if dialect_of(constraint) == "lark":
                return _of_lark(constraint.text)
            case _:
                return None
    except GrammarError:
        return None  # a library has read what our own reader does not know


def _of_lark(text: str) -> frozenset[int] | None:
    """The bytes of every text and regex in a grammar, whether or not it is in use."""
    found: set[int] = set()
    for token in tokens_of(text):
        alphabet = _of_token(token)
        if alphabet is None:
            return None
        found |= alphabet
    return frozenset(found)


def _of_token(token: Token) -> frozenset[int] | None:
    match token.kind:
        case "string" | "regex":
            return _of_plain(token.text)
        case "newline" | "count":
            return frozenset()
        case "name" if not token.text.startswith("@"):
            return frozenset()
        case "mark" if _LARK_MARK.fullmatch(token.text):
            return frozenset()
        case "directive" if token.text == "%ignore":
            return frozenset()
    return None


def _of_plain(text: str) -> frozenset[int] | None:
    match plain_form(text):
        case Text(text):
            return frozenset(text.encode())
        case Pattern(pattern, dialect=dialect):
            return _of_pattern(pattern, dialect)
    return None


def _of_pattern(text: str, dialect: Dialect) -> frozenset[int] | None:
    pairs: list[tuple[int, int]] = []
    for node in walk(read(text, dialect), enters_looks=False):
        if isinstance(node, Refused):
            return None
        if isinstance(node, Plain):
            pairs += _characters_of(node.regex)
    return utf8_bytes(ranges.normalise(pairs))


def _characters_of(regex: syntax.Regex) -> list[tuple[int, int]]:
    """The characters that matches are made of, or more; a part that is used twice counts once."""
    found: list[tuple[int, int]] = []
    pending, seen = [regex], {regex}
    while pending:
        node = pending.pop()
        followers: tuple[syntax.Regex, ...] = ()
        match node:
            case syntax.Characters(pairs):
                found += pairs
            case syntax.Sequence(first, rest):
                followers = (first, rest)
            case syntax.Alternatives(items):
                followers = items
            case syntax.And(items):
                followers = items[:1]  # what all of them match each of them does
            case syntax.Repeat(item):
                followers = (item,)
            case syntax.Not():
                found += ranges.EVERY
            case syntax.Empty():
                pass
        pending += [follower for follower in followers if follower not in seen]
        seen.update(followers)
    return found


def utf8_bytes(pairs: Ranges) -> frozenset[int]:
    """The bytes of these characters in UTF-8, or more of those that go on with a character."""
    found: set[int] = set()
    for low, high in ranges.intersect(pairs, _ENCODED):
        first, last = chr(low).encode(), chr(high).encode()  # of equal length
        for place, (from_byte, to_byte) in enumerate(zip(first, last, strict=True)):
            found.update(range(from_byte, to_byte + 1))
            if from_byte != to_byte:
                if place + 1 < len(first):
                    found.update(_CONTINUATIONS)
                break
    return frozenset(found)
