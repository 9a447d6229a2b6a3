r"""The regex constraint: one dialect for every backend, that of Python's `re.fullmatch`.

Except that `\d` and `\w` are ASCII, as in ECMAScript and so in JSON Schema: who writes `\d{4}`
does not expect digits of other scripts.
"""

from __future__ import annotations

import re
from typing import Literal

from structspec.errors import GrammarError
from structspec.grammars.regexes import ranges
from structspec.grammars.regexes.derive import is_empty
from structspec.grammars.regexes.parse import lookaround_error, parse_full
from structspec.grammars.regexes.plain import plain_text
from structspec.grammars.regexes.ranges import Ranges
from structspec.grammars.regexes.syntax import EMPTY, Regex

_ESCAPES = {"\0": r"\x00", "\n": r"\n", "\r": r"\r", "\t": r"\t"}


def read_regex(
    pattern: str, *, may_be_empty: bool = False, dialect: Literal["python", "rust"] = "python"
) -> Regex:
    """The texts a pattern matches; GrammarError with its place, or where there are none."""
    regex = parse_full(pattern, dialect)
    if regex is EMPTY and not may_be_empty:
        raise GrammarError("the regex is empty: the model would write nothing")
    if is_empty(regex):
        raise GrammarError("no text at all satisfies the regex")
    return regex


def translate(
    pattern: str, *, may_be_empty: bool = False, dialect: Literal["python", "rust"] = "python"
) -> str:
    """The pattern as every regex library reads it, lookaround that says one thing spelled out.

    Raises UnsupportedConstraint, with its place, for lookaround that needs an intersection.
    """
    return plain_text(read_plain(pattern, may_be_empty=may_be_empty, dialect=dialect), _class)


def read_plain(
    pattern: str, *, may_be_empty: bool = False, dialect: Literal["python", "rust"] = "python"
) -> Regex:
    """Like `read_regex`, without lookaround; raises what `translate` does."""
    regex = read_regex(pattern, may_be_empty=may_be_empty, dialect=dialect)
    if not regex.is_plain:
        raise lookaround_error(pattern, dialect)
    return regex


def _class(pairs: Ranges) -> str:
    """A class in what Rust's, Python's and xgrammar's readers have in common."""
    if pairs == ((0, 0),):  # xgrammar takes it for the end of its string
        return f"[^{_members(ranges.invert(pairs))}]"
    others = ranges.invert(pairs)
    if others and len(others) < len(pairs):
        return f"[^{_members(others)}]"
    low, high = pairs[0]
    return _character(low) if len(pairs) == 1 and low == high else f"[{_members(pairs)}]"


def _members(pairs: Ranges) -> str:
    # NUL alone comes last: xgrammar reads every hexadecimal digit behind it as part of it
    ordered = (*pairs[1:], pairs[0]) if pairs[0] == (0, 0) else pairs
    return "".join(
        _character(low) if low == high else f"{_character(low)}-{_character(high)}"
        for low, high in ordered
    )


def _character(code_point: int) -> str:
    r"""As itself where that can be: xgrammar reads `\x0ab` as one character, `\x{200b}` as an x."""
    character = chr(code_point)
    if character in _ESCAPES:
        return _ESCAPES[character]
    is_word = character.isalnum() or character == "_"
    return re.escape(character) if " " < character <= "~" and not is_word else character
