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
        num_before = max(0, regex.minimum - 1)
        return Width(regex.minimum * least, num_before * least + lacking, growth)
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
    least = lacking = 0
    for part in reversed(widths):
        lacking = max(lacking, part.lacking + least)
        least = min(_MOST, least + part.least)
    return Width(least, lacking, max(part.growth for part in widths))
