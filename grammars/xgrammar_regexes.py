r"""Regexes inside JSON strings for xgrammar, as bodies of its rules.

    [^:]+   ->   Regex("(?:[ -!#-9;-\[...]|\\[\"\\/bfnrt]|...)+")   one automaton: quick masks
    .*a     ->   ([^\x00-\x1f...] | "\\" ...)* "a"                  rules: slower, never wrong

The automaton of version 0.2.9 takes texts that it should not where two ways begin alike, as in
`b|bb?`, and behind `?`. So it gets regexes in which each next character decides, without `?`: of
70,000 random ones it held all. The others are written as rules.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from structspec.grammars.regex import read_regex
from structspec.grammars.regexes import ranges
from structspec.grammars.regexes.derive import transitions
from structspec.grammars.regexes.json_spellings import spelled
from structspec.grammars.regexes.ranges import Ranges
from structspec.grammars.regexes.syntax import (
    EMPTY,
    NOTHING,
    Alternatives,
    Characters,
    Regex,
    Repeat,
    Sequence,
    alternatives,
    characters,
    parts,
    repeat,
    sequence,
)

# what stands in a JSON string as it is
_RAW = ranges.subtract(ranges.EVERY, ranges.union(((0, 0x1F),), ranges.of('"\\')))
# Spelled out, a character has some 400 characters of regex and 15 states. Beyond so many
# characters in all an automaton takes more than 200 ms to compile, rules one to fill a row
_MAX_AUTOMATON, _MAX_RULES = 8_000, 2_000
_BY_NUM_BYTES = ((0, 0x7FF), (0x800, 0xFFFF), (0x10000, ranges.MAX_CODE_POINT))
_SLASH = ranges.of("/")
_NUL = ((0, 0),)  # ends a text of the library
_SURROGATES = r"\ud800-\udfff"


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a rule, how often it stands between the quotes, and whether it has escapes."""

    text: str
    count: str = ""
    has_escapes: bool = True


def json_string_body(regex: Regex) -> Body:
    """What stands between the quotes of a JSON string."""
    size = _num_spelled(regex)
    if size <= _MAX_RULES or not _can_be_raw(regex):
        return Body(_text(_replaced(regex, _spelled_out)))
    if size <= _MAX_AUTOMATON and _is_decided(whole := _replaced(regex, _spelled_out), ()):
        return Body(_text(whole))
    raw = _replaced(regex, _without_escapes)
    if isinstance(raw, Repeat) and isinstance(raw.item, Characters) and raw.maximum is not None:
        # a class that is counted right between quotes takes the library no time, however long
        return Body(_rule(raw.item), _count(raw.minimum, raw.maximum), has_escapes=False)
    return Body(_text(raw), has_escapes=False)


def regex_grammar(regex: Regex) -> str:
    """A grammar of the texts of a plain regex, outside of JSON."""
    return f"root ::= {regex_body(regex)}"


def regex_body(regex: Regex) -> str:
    """They as the body of a rule, or a part of one."""
    return f"({_text(regex)})"


def _text(regex: Regex) -> str:
    if regex is EMPTY:
        return '""'
    if _is_decided(regex, ()) and not any(
        ranges.intersect(pairs, _NUL) for pairs in _classes(regex)
    ):
        return f"Regex({json.dumps(_pattern(regex), ensure_ascii=False)})"
    return _rule(regex)


# Spelling


def _replaced(regex: Regex, spell: Callable[[Ranges], Regex]) -> Regex:
    """The regex with something else in the place of each class."""
    match regex:
        case Characters(pairs):
            return spell(pairs)
        case Alternatives(items):
            return alternatives(*(_replaced(item, spell) for item in items))
        case Repeat(item, minimum, maximum):
            return repeat(_replaced(item, spell), minimum, maximum)
        case _:
            return sequence(*(_replaced(part, spell) for part in parts(regex)))


@lru_cache(maxsize=1024)
def _spelled_out(pairs: Ranges) -> Regex:
    """One character of the set in its spellings, each next character of which decides."""
    if not pairs:
        return NOTHING
    slash = ranges.intersect(pairs, _SLASH)  # as itself only: so it decides more often
    others = ranges.subtract(pairs, slash)
    tree = _decided(read_regex(spelled(others), dialect="rust")) if others else NOTHING
    return alternatives(characters(slash), tree) if slash else tree


def _decided(regex: Regex) -> Regex:
    """The same finite set of words as a tree by their first characters."""
    ways = [sequence(characters(some), _decided(rest)) for some, rest in transitions(regex)]
    return alternatives(*ways, *([EMPTY] if regex.is_nullable else []))


def _without_escapes(pairs: Ranges) -> Regex:
    return characters(ranges.intersect(pairs, _RAW))


def _can_be_raw(regex: Regex) -> bool:
    """Whether each character of it can be one that needs no escape."""
    return all(not pairs or ranges.intersect(pairs, _RAW) for pairs in _classes(regex))


def _classes(regex: Regex) -> Iterator[Ranges]:
    match regex:
        case Characters(pairs):
            yield pairs
        case Alternatives(items):
            for item in items:
                yield from _classes(item)
        case Repeat(item, _, _):
            yield from _classes(item)
        case Sequence():
            for part in parts(regex):
                yield from _classes(part)


def _num_spelled(regex: Regex) -> int:
    """How many characters its spelling has where repeats are written out."""
    match regex:
        case Characters(pairs):
            return len(spelled(pairs)) if pairs else 0
        case Repeat(item, minimum, maximum):
            return _num_spelled(item) * max(1, minimum if maximum is None else maximum)
        case Alternatives(items):
            return sum(map(_num_spelled, items))
        case Sequence():
            return sum(map(_num_spelled, parts(regex)))
        case _:
            return 0


# Whether each next character decides where in the regex one stands


def _is_decided(regex: Regex, following: Ranges) -> bool:
    """Whether it does where these may stand behind it; False also where that is hard to tell."""
    match regex:
        case Sequence(first, rest):
            behind = _first(rest)
            if rest.is_nullable:
                behind = ranges.union(behind, following)
            return _is_decided(first, behind) and _is_decided(rest, following)
        case Alternatives(items):
            seen = following if regex.is_nullable else ()
            for item in items:
                if ranges.intersect(seen, _first(item)):
                    return False
                seen = ranges.union(seen, _first(item))
            is_one_empty = sum(item.is_nullable for item in items) < 2
            return is_one_empty and all(_is_decided(item, following) for item in items)
        case Repeat(item, minimum, maximum):
            again = _first(item)
            if item.is_nullable or (minimum != maximum and ranges.intersect(again, following)):
                return False
            return _is_decided(item, ranges.union(again, following))
        case _:
            return True


def _first(regex: Regex) -> Ranges:
    """What it may begin with."""
    match regex:
        case Characters(pairs):
            return pairs
        case Sequence(first, rest):
            begun = _first(first)
            return ranges.union(begun, _first(rest)) if first.is_nullable else begun
        case Alternatives(items):
            begun = ()
            for item in items:
                begun = ranges.union(begun, _first(item))
            return begun
        case Repeat(item, _, _):
            return _first(item)
        case _:
            return ()


# Writing


def _pattern(regex: Regex) -> str:
    """As a pattern: with no `?`, which is not held where a count or a loop is inside."""
    match regex:
        case Characters(pairs):
            return _class(pairs)
        case Alternatives(items):
            return f"(?:{'|'.join(map(_pattern, items))})"
        case Repeat(item, minimum, maximum):
            return f"(?:{_pattern(item)}){_count(minimum, maximum)}"
        case _:
            return "".join(map(_pattern, parts(regex)))


def _class(pairs: Ranges) -> str:
    """A class as the library reads it to the byte.

    What it makes of `[^...]` has surrogates, and of characters of one and of three bytes in one
    class also bytes that are no text.
    """
    sizes = (ranges.intersect(pairs, (span,)) for span in _BY_NUM_BYTES)
    classes = [f"[{_members(some, _character)}]" for some in sizes if some]
    return classes[0] if len(classes) == 1 else f"(?:{'|'.join(classes)})"


def _character(code_point: int) -> str:
    """As itself: of the characters that JSON strings have, the library takes no other spelling."""
    character = chr(code_point)
    is_mark = " " < character <= "~" and not character.isalnum()
    return f"\\{character}" if is_mark else character


def _rule(regex: Regex) -> str:
    """As the body of a rule."""
    match regex:
        case Characters(pairs):
            others = ranges.invert(pairs)
            if len(others) < len(pairs):  # the library counts these quickest
                return f"[^{_members(others, _escaped)}{_SURROGATES}]"
            return f"[{_members(pairs, _escaped)}]"
        case Alternatives(items):
            return f"({' | '.join(map(_rule, items))})"
        case Repeat(item, minimum, maximum):
            written = _rule(item) if isinstance(item, Characters) else f"({_rule(item)})"
            if maximum is None and minimum > 1:
                return f"{written}{{{minimum}}} {written}*"
            sign = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((minimum, maximum))
            return written + (sign or _count(minimum, maximum))
        case _:
            return " ".join(map(_rule, parts(regex))) or '""'


def _escaped(code_point: int) -> str:
    return f"\\U{code_point:08x}"


def _members(pairs: Ranges, write: Callable[[int], str]) -> str:
    spans = ((write(low), write(high)) for low, high in pairs)
    return "".join(low if low == high else f"{low}-{high}" for low, high in spans)


def _count(minimum: int, maximum: int | None) -> str:
    if (minimum, maximum) == (0, None):
        return "*"
    return f"{{{minimum},{'' if maximum is None else maximum}}}"
