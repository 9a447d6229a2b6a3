"""Writing a regex as the body of a terminal in llguidance's Lark.

Parts without And and Not become one `/.../` in the syntax of Rust's regex crate, And and Not the
operators of Lark around them. With `quoted` it is the inside of a JSON string: each character then
stands for its spellings, which no two characters share, so And and Not mean what they meant.
"""

from __future__ import annotations

from functools import lru_cache

from structspec.grammars.regexes import ranges
from structspec.grammars.regexes.json_spellings import any_spelling, spelled
from structspec.grammars.regexes.ranges import Ranges
from structspec.grammars.regexes.rust import character_class
from structspec.grammars.regexes.syntax import (
    EMPTY,
    NOTHING,
    Alternatives,
    And,
    Characters,
    Empty,
    Not,
    Regex,
    Repeat,
    Sequence,
    parts,
)

QUOTED_ANY = f"/{spelled(ranges.EVERY)}/"
FREE_CHARACTER = f"/{any_spelling()}/"


@lru_cache(maxsize=512)
def to_lark(regex: Regex, *, quoted: bool) -> str:
    """The terminal body, in brackets or a single literal: ready for `&`, `|`, `~` and `{m,n}`."""
    if regex is EMPTY:
        return '""'
    if regex.is_plain:
        return f"/{_plain(regex, quoted)}/"
    match regex:
        case And(items):
            return f"({' & '.join(to_lark(item, quoted=quoted) for item in items)})"
        case Not(item):
            # `~` alone also takes bytes that are no text
            return f"({_anything(quoted)} & ~{to_lark(item, quoted=quoted)})"
        case Alternatives(items):
            return f"({' | '.join(_grouped(items, quoted))})"
        case Repeat(item, minimum, maximum):
            upper = "" if maximum is None else maximum
            return f"({to_lark(item, quoted=quoted)}{{{minimum},{upper}}})"
        case Sequence():
            return f"({' '.join(_joined(regex, quoted))})"
        case _:
            raise AssertionError(f"{type(regex).__name__} is plain")


def _anything(quoted: bool) -> str:
    return f"{QUOTED_ANY}*" if quoted else "/(?s:.*)/"


def _grouped(items: tuple[Regex, ...], quoted: bool) -> list[str]:
    """The plain alternatives as one literal, then the others."""
    plain = [item for item in items if item.is_plain]
    literal = [f"/{'|'.join(_branch(item, quoted) for item in plain)}/"] if plain else []
    return literal + [to_lark(item, quoted=quoted) for item in items if not item.is_plain]


def _joined(regex: Sequence, quoted: bool) -> list[str]:
    """The items of a sequence, neighbours without And and Not as one literal."""
    written: list[str] = []
    plain: list[Regex] = []
    for part in parts(regex):
        if part.is_plain:
            plain.append(part)
            continue
        if plain:
            written.append(f"/{''.join(_atom(item, quoted) for item in plain)}/")
            plain = []
        written.append(to_lark(part, quoted=quoted))
    if plain:
        written.append(f"/{''.join(_atom(item, quoted) for item in plain)}/")
    return written


def _plain(regex: Regex, quoted: bool) -> str:
    """Rust regex text; as tight as an alternative, not as an item of a sequence."""
    match regex:
        case Empty():
            return ""
        case Characters(pairs):
            return _characters(pairs, quoted)
        case Alternatives(items):
            return "|".join(_branch(item, quoted) for item in items)
        case Repeat(item, minimum, maximum):
            return _repeatable(item, quoted) + _count(minimum, maximum)
        case _:
            return "".join(_atom(part, quoted) for part in parts(regex))


def _branch(regex: Regex, quoted: bool) -> str:
    return _plain(regex, quoted) if regex is not EMPTY else "(?:)"


def _atom(regex: Regex, quoted: bool) -> str:
    """As an item of a sequence."""
    written = _plain(regex, quoted)
    return f"(?:{written})" if isinstance(regex, Alternatives) else written


def _repeatable(regex: Regex, quoted: bool) -> str:
    written = _plain(regex, quoted)
    return written if isinstance(regex, Characters) else f"(?:{written})"


def _count(minimum: int, maximum: int | None) -> str:
    sign = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((minimum, maximum))
    if sign is not None:
        return sign
    if minimum == maximum:
        return f"{{{minimum}}}"
    return f"{{{minimum},{'' if maximum is None else maximum}}}"


@lru_cache(maxsize=1024)
def _characters(pairs: Ranges, quoted: bool) -> str:
    """One character of a class, bracketed where it is more than one item."""
    if not pairs:
        return character_class(NOTHING.ranges)
    if quoted:
        return spelled(pairs)
    return "(?s:.)" if pairs == ranges.EVERY else character_class(pairs)
