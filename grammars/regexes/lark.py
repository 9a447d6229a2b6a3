"""Writing a regex as the body of a terminal in llguidance's Lark.

Parts without And and Not become one `/.../` in the syntax of Rust's regex crate, And and Not the
operators of Lark around them. With `quoted` it is the inside of a JSON string: each character then
stands for its spellings, which no two characters share, so And and Not mean what they meant.
"""

from __future__ import annotations

from functools import lru_cache

from structspec.grammars.regexes import ranges
from structspec.grammars.regexes.json_spellings import any_spelling, spelled
from structspec.grammars.regexes.plain import plain_text
from structspec.grammars.regexes.ranges import Ranges
from structspec.grammars.regexes.rust import character_class
from structspec.grammars.regexes.syntax import (
    EMPTY,
    Alternatives,
    And,
    Not,
    Regex,
    Repeat,
    Sequence,
    alternatives,
    parts,
    sequence,
)

QUOTED_ANY = f"/{spelled(ranges.EVERY)}/"
FREE_CHARACTER = f"/{any_spelling()}/"


@lru_cache(maxsize=512)
def to_lark(regex: Regex, *, quoted: bool) -> str:
    """The terminal body, in brackets or a single literal: ready for `&`, `|`, `~` and `{m,n}`."""
    if regex is EMPTY:
        return '""'
    if regex.is_plain:
        return _literal(regex, quoted)
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
    literal = [_literal(alternatives(*plain), quoted)] if plain else []
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
            written.append(_literal(sequence(*plain), quoted))
            plain = []
        written.append(to_lark(part, quoted=quoted))
    if plain:
        written.append(_literal(sequence(*plain), quoted))
    return written


def _literal(regex: Regex, quoted: bool) -> str:
    return f"/{plain_text(regex, _quoted if quoted else _unquoted)}/"


def _quoted(pairs: Ranges) -> str:
    return spelled(pairs) if pairs else character_class(pairs)


def _unquoted(pairs: Ranges) -> str:
    return "(?s:.)" if pairs == ranges.EVERY else character_class(pairs)
