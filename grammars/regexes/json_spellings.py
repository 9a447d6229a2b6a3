r"""How characters are spelled inside JSON strings, as Rust regex text.

One convention for all patterns, in which no spelling stands for two characters:

    printable ASCII, except below   itself
    /                               itself or \/
    " and \                         \" and \\, or \u0022 and \u005c
    U+0000 to U+001F                \b \f \n \r \t where they exist, or \u00XX
    U+007F and beyond ASCII         itself or \uXXXX; beyond U+FFFF itself or a pair \uD8XX\uDCXX

Hexadecimal digits are of either case.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from structspec.grammars.regexes import ranges
from structspec.grammars.regexes.ranges import Ranges
from structspec.grammars.regexes.rust import character_class

_SHORT = {'"': '"', "\\": "\\", "/": "/", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}
_CONTROLS: Ranges = ((0, 0x1F),)
_MARKS = ranges.of('"\\')
_LITERAL = ranges.subtract(ranges.EVERY, ranges.union(_CONTROLS, _MARKS))
_BEYOND_ASCII: Ranges = ((0x7F, 0xD7FF), (0xE000, 0xFFFF))
_NUMBERED = ranges.union(_BEYOND_ASCII, ranges.union(_CONTROLS, _MARKS))
_BMP: Ranges = ((0, 0xD7FF), (0xE000, 0xFFFF))
_ASTRAL: Ranges = ((0x10000, ranges.MAX_CODE_POINT),)

Digits = tuple[tuple[int, int], ...]  # ranges of numbers, which may be halves of pairs


@lru_cache(maxsize=1024)
def spelled(pairs: Ranges) -> str:
    """One character of the set in any of its spellings; may be repeated as it stands."""
    return _spelled(pairs, _NUMBERED)


@lru_cache(maxsize=1)
def any_spelling() -> str:
    r"""Any character in any spelling that JSON allows, `\u0061` for an `a` included."""
    return _spelled(ranges.EVERY, _BMP)


def _spelled(pairs: Ranges, numbered: Ranges) -> str:
    choices: list[str] = []
    if literal := ranges.intersect(pairs, _LITERAL):
        choices.append(character_class(literal))
    escapes: list[str] = []
    if short := _short_escapes(pairs):
        escapes.append(short)
    if bmp := ranges.intersect(pairs, numbered):
        escapes.append(f"u{_hex(bmp, 4)}")
    escapes += (f"u{pair}" for pair in _pairs(ranges.intersect(pairs, _ASTRAL)))
    if escapes:
        choices.append(rf"\x5C{_any_of(escapes)}")
    return f"(?:{'|'.join(choices)})" if escapes else choices[0]


def _short_escapes(pairs: Ranges) -> str:
    letters = "".join(
        letter for c, letter in _SHORT.items() if ranges.intersect(pairs, ranges.of(c))
    )
    return character_class(ranges.of(letters)) if letters else ""


def _pairs(astral: Ranges) -> Iterable[str]:
    r"""`D83D\uDE00` and the like: first halves that go with the same second halves together."""
    by_second: dict[Digits, list[tuple[int, int]]] = {}
    for low, high in astral:
        for first, second in _split(low - 0x10000, high - 0x10000, 0x400):
            by_second.setdefault(second, []).append(first)
    merged: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for second, firsts in by_second.items():
        for first in firsts:
            merged.setdefault(first, []).extend(second)
    grouped: dict[Digits, list[tuple[int, int]]] = {}
    for first, seconds in merged.items():
        grouped.setdefault(tuple(sorted(seconds)), []).append(first)
    for second, firsts in grouped.items():
        high_half = _hex(_shifted(sorted(firsts), 0xD800), 4)
        yield rf"{high_half}\x5Cu{_hex(_shifted(second, 0xDC00), 4)}"


def _shifted(pairs: Iterable[tuple[int, int]], offset: int) -> Digits:
    return tuple((low + offset, high + offset) for low, high in pairs)


def _split(low: int, high: int, width: int) -> Iterable[tuple[tuple[int, int], Digits]]:
    """A range of numbers as (range of leading parts, ranges of trailing parts)."""
    first, last = low // width, high // width
    if first == last:
        yield (first, first), ((low % width, high % width),)
        return
    if low % width:
        yield (first, first), ((low % width, width - 1),)
        first += 1
    if high % width != width - 1:
        yield (last, last), ((0, high % width),)
        last -= 1
    if first <= last:
        yield (first, last), ((0, width - 1),)


@lru_cache(maxsize=4096)
def _hex(pairs: Digits, num_digits: int) -> str:
    """Numbers written with this many hexadecimal digits; an item of a sequence."""
    if num_digits == 0:
        return ""
    width = 16 ** (num_digits - 1)
    tails: dict[int, list[tuple[int, int]]] = {}
    for low, high in pairs:
        for (first, last), trailing in _split(low, high, width):
            for digit in range(first, last + 1):
                tails.setdefault(digit, []).extend(trailing)
    digits: dict[Digits, list[int]] = {}
    for digit, tail in sorted(tails.items()):
        digits.setdefault(tuple(sorted(tail)), []).append(digit)
    return _any_of(
        [_digit_class(group) + _hex(tail, num_digits - 1) for tail, group in digits.items()]
    )


def _digit_class(digits: list[int]) -> str:
    return character_class(ranges.of("".join(f"{digit:x}{digit:X}" for digit in digits)))


def _any_of(choices: list[str]) -> str:
    return choices[0] if len(choices) == 1 else f"(?:{'|'.join(choices)})"
