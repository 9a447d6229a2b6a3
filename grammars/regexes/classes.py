r"""Named sets of characters: `\d`, `[:alpha:]`, `\p{L}`, and what differs by case alone."""

from __future__ import annotations

import sys
import unicodedata
from collections import defaultdict
from functools import cache, lru_cache
from typing import Literal

from structspec.grammars.regexes import ranges
from structspec.grammars.regexes.ranges import Ranges

DIGITS: Ranges = ((0x30, 0x39),)
WORD: Ranges = ranges.normalise([(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)])
ECMA_SPACE: Ranges = ranges.normalise(
    [(9, 13), (0x2000, 0x200A), *((c, c) for c in (0x20, 0xA0, 0x1680, 0x2028, 0x2029))]
    + [(c, c) for c in (0x202F, 0x205F, 0x3000, 0xFEFF)]
)
PYTHON_SPACE: Ranges = ranges.of("".join(c for c in map(chr, range(0x3001)) if c.isspace()))
NEWLINE: Ranges = ((10, 10),)
ECMA_LINE_ENDS: Ranges = ((10, 10), (13, 13), (0x2028, 0x2029))

POSIX: dict[str, Ranges] = {
    "alnum": ranges.subtract(WORD, ranges.of("_")),
    "alpha": ranges.normalise([(0x41, 0x5A), (0x61, 0x7A)]),
    "ascii": ((0, 0x7F),),
    "blank": ranges.of(" \t"),
    "cntrl": ((0, 0x1F), (0x7F, 0x7F)),
    "digit": DIGITS,
    "graph": ((0x21, 0x7E),),
    "lower": ((0x61, 0x7A),),
    "print": ((0x20, 0x7E),),
    "punct": ranges.normalise([(0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)]),
    "space": ranges.of(" \t\n\v\f\r"),
    "upper": ((0x41, 0x5A),),
    "word": WORD,
    "xdigit": ranges.normalise([(0x30, 0x39), (0x41, 0x46), (0x61, 0x66)]),
}

_CATEGORY_NAMES = {
    "letter": "L",
    "cased_letter": "LC",
    "uppercase_letter": "Lu",
    "lowercase_letter": "Ll",
    "titlecase_letter": "Lt",
    "modifier_letter": "Lm",
    "other_letter": "Lo",
    "mark": "M",
    "nonspacing_mark": "Mn",
    "spacing_mark": "Mc",
    "enclosing_mark": "Me",
    "number": "N",
    "decimal_number": "Nd",
    "digit": "Nd",
    "letter_number": "Nl",
    "other_number": "No",
    "punctuation": "P",
    "punct": "P",
    "connector_punctuation": "Pc",
    "dash_punctuation": "Pd",
    "open_punctuation": "Ps",
    "close_punctuation": "Pe",
    "initial_punctuation": "Pi",
    "final_punctuation": "Pf",
    "other_punctuation": "Po",
    "symbol": "S",
    "math_symbol": "Sm",
    "currency_symbol": "Sc",
    "modifier_symbol": "Sk",
    "other_symbol": "So",
    "separator": "Z",
    "space_separator": "Zs",
    "line_separator": "Zl",
    "paragraph_separator": "Zp",
    "other": "C",
    "control": "Cc",
    "format": "Cf",
    "private_use": "Co",
    "unassigned": "Cn",
}


@cache
def named_set(letter: str, dialect: Literal["ecma", "lenient", "python", "rust"]) -> Ranges:
    r"""What `\d`, `\w` or `\s` is; Rust's alone are Unicode's."""
    if dialect == "rust":
        return _unicode_set(letter)
    space = PYTHON_SPACE if dialect == "python" else ECMA_SPACE
    return {"d": DIGITS, "w": WORD, "s": space}[letter]


def _unicode_set(letter: str) -> Ranges:
    """As `unicode_property` would tell, without looking at every character there may be."""
    if letter == "s":
        return ranges.subtract(PYTHON_SPACE, ((0x1C, 0x1F),))
    if letter == "d":
        return ranges.of("".join(c for c in map(chr, range(0x20000)) if c.isdecimal()))
    word = r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}"
    letters_and_variants = ((0, 0xD7FF), (0xE000, 0x3FFFF), (0xE0000, 0xE0FFF))
    return ranges.normalise(pair for block in letters_and_variants for pair in _found(word, block))


@lru_cache(maxsize=256)
def unicode_property(name: str) -> Ranges | None:
    r"""The characters of `\p{name}`; None where this machine knows no such property."""
    key, _, value = name.partition("=")
    if value and key in ("General_Category", "gc"):
        return _category(value)
    if not value and (found := _category(name)) is not None:
        return found
    if name == "Any":
        return ranges.EVERY
    if name == "ASCII":
        return POSIX["ascii"]
    if name == "Assigned":
        return ranges.invert(_categories()["Cn"])
    return _from_regex_package(name)


def fold(pairs: Ranges) -> Ranges:
    """These characters and all that differ from one of them by case alone."""
    groups = _case_groups()
    more = [
        (other, other) for c in groups if _contains(pairs, c) for other in groups[c] if other != c
    ]
    return ranges.union(pairs, ranges.normalise(more)) if more else pairs


def _contains(pairs: Ranges, code_point: int) -> bool:
    return any(low <= code_point <= high for low, high in pairs)


def _category(name: str) -> Ranges | None:
    name = _CATEGORY_NAMES.get(name.lower(), name)
    if name in ("LC", "L&"):
        return ranges.normalise(p for c in ("Lu", "Ll", "Lt") for p in _categories()[c])
    found = [pairs for category, pairs in _categories().items() if category.startswith(name)]
    if not name or not found:
        return None
    return ranges.normalise(pair for pairs in found for pair in pairs)


@cache
def _categories() -> dict[str, Ranges]:
    """The characters of every two-letter general category."""
    found: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    last, start = unicodedata.category("\0"), 0
    for code_point in range(1, sys.maxunicode + 2):
        category = "" if code_point > sys.maxunicode else unicodedata.category(chr(code_point))
        if category != last:
            found[last].append((start, code_point - 1))
            last, start = category, code_point
    return {name: ranges.normalise(pairs) for name, pairs in found.items()}


@cache
def _case_groups() -> dict[int, tuple[int, ...]]:
    """For each cased character, all that fold to the same one character, itself included."""
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for name in ("Lu", "Ll", "Lt", "Mn", "Nl", "So"):
        for code_point in ranges.code_points(_categories()[name]):
            groups[_simple_fold(chr(code_point))].append(code_point)
    return {c: tuple(group) for group in groups.values() if len(group) > 1 for c in group}


def _simple_fold(character: str) -> str:
    folded = character.casefold()
    return folded if len(folded) == 1 else character.lower()


def _from_regex_package(name: str) -> Ranges | None:
    """Scripts and derived properties, from the tables of the `regex` package."""
    import regex  # 15 ms, and seldom needed

    try:
        blocks = ((0, 0xD7FF), (0xE000, ranges.MAX_CODE_POINT))
        return ranges.normalise(p for block in blocks for p in _found(rf"\p{{{name}}}", block))
    except regex.error:
        return None


def _found(members: str, block: tuple[int, int]) -> Ranges:
    """The characters of a block that are in a set, as the `regex` package writes it."""
    import regex

    text = "".join(map(chr, range(block[0], block[1] + 1)))
    runs = regex.compile(f"[{members}]+", regex.V1).finditer(text)
    return tuple((block[0] + run.start(), block[0] + run.end() - 1) for run in runs)
