"""How many characters a text of a regular expression has at least, and may still lack at most.

least(node)    of its shortest text
lacking(node)  least(node), and what is begun of its parts that need not have been
growth(node)   what one character adds at most to what is lacking

    a*      0, 1, 1     (ab)?c    1, 3, 2     a{64}    64, 64, 0     x|yyyy    1, 4, 3
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from structspec.errors import StructspecError
from structspec.grammars.regexes.parse import parse_full, parse_search
from structspec.grammars.regexes.syntax import (
    Alternatives,
    And,
    Characters,
    Empty,
    Not,
    Regex,
    Repeat,
    parts,
)
from structspec.grammars.regexes.syntax import Sequence as Parts

_MOST = 2048
_MOST_SPELLED = 200  # characters
_KNOWN = "0aA -_"  # that are written rather than others


class Width(NamedTuple):
    """In characters; `lacking` is no less than `least`."""

    least: int
    lacking: int
    growth: int


_UNKNOWN = Width(16, 48, 48)  # of what no automaton holds


@lru_cache(maxsize=1024)
def width_of_pattern(pattern: str, *, is_searched: bool = False) -> Width:
    """Of texts that match a pattern, or have a part that does; a guess where it cannot be read."""
    try:
        return width_of(parse_search(pattern) if is_searched else parse_full(pattern))
    except (StructspecError, RecursionError):
        return _UNKNOWN


@lru_cache(maxsize=1024)
def shortest_match(pattern: str) -> str | None:
    """A shortest text in which a pattern is found; None where it is not read off, or is long."""
    try:
        regex = parse_search(pattern)
        return _shortest(regex) if width_of(regex).least <= _MOST_SPELLED else None
    except (StructspecError, RecursionError):
        return None


@lru_cache(maxsize=1024)
def shortest_tails(pattern: str) -> tuple[str, ...]:
    """Of texts that match a pattern, the shortest that its last parts have, those of few first."""
    try:
        regex = parse_full(pattern)
        tails: dict[str, None] = {}
        text = ""
        for part in reversed([*parts(regex)]):
            found = _shortest(part) if width_of(part).least <= _MOST_SPELLED else None
            if found is None or len(text) > _MOST_SPELLED:
                break
            text = found + text
            tails[text] = None
        return tuple(filter(None, tails))
    except (StructspecError, RecursionError):
        return ()


def _shortest(regex: Regex) -> str | None:
    if isinstance(regex, Empty):
        return ""
    if isinstance(regex, Characters):
        known = (c for c in _KNOWN for low, high in regex.ranges if low <= ord(c) <= high)
        return next(known, chr(regex.ranges[0][0]) if regex.ranges else None)
    if isinstance(regex, Parts):
        found = [_shortest(part) for part in parts(regex)]
        return None if None in found else "".join(filter(None, found))
    if isinstance(regex, Repeat):
        text = _shortest(regex.item) if regex.minimum else ""
        return None if text is None else text * regex.minimum
    if isinstance(regex, Alternatives):
        texts = [text for text in map(_shortest, regex.items) if text is not None]
        return min(texts, key=len, default=None)
    return None


def width_of(regex: Regex) -> Width:
    """Of texts that match; what is longer than some thousand characters counts as that."""
    width = _width_of(regex)
    return Width(*(min(_MOST, number) for number in width))


def _width_of(regex: Regex) -> Width:
    if isinstance(regex, Empty | Not):
        return Width(0, 0, 0)
    if isinstance(regex, Characters):
        return Width(1, 1, 0) if regex.ranges else Width(_MOST, 0, 0)
    if isinstance(regex, Parts):
        return _in_a_row([width_of(part) for part in parts(regex)])
    if isinstance(regex, Repeat):
        least, lacking, growth = width_of(regex.item)
        if regex.maximum is None or regex.maximum > regex.minimum:
            growth = max(growth, lacking)
        others = max(0, regex.minimum - 1) * least
        return Width(regex.minimum * least, others + lacking, growth and growth + others)
    assert isinstance(regex, Alternatives | And)
    widths = [width_of(item) for item in regex.items]
    lengths = [width.least for width in widths]
    lacking = max(width.lacking for width in widths)
    if isinstance(regex, And):
        return Width(max(lengths), lacking, lacking)
    growth = max(width.growth for width in widths)
    return Width(min(lengths), lacking, max(growth, lacking - min(lengths)))


def _in_a_row(widths: list[Width]) -> Width:
    """Of one part behind the other: what lacks is most of one that is begun, and all behind it."""
    least = lacking = growth = 0
    for part in reversed(widths):
        lacking = max(lacking, part.lacking + least)
        if part.growth:  # what seemed to be of those behind may have been of this one
            growth = max(growth, part.growth + least)
        least = min(_MOST, least + part.least)
    return Width(least, lacking, growth)
