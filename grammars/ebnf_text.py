"""EBNF text before xgrammar reads it: what that library would misread, pass over or fall over."""

from __future__ import annotations

import re
import sys

from structspec.errors import GrammarError, UnsupportedConstraint
from structspec.grammars.cfg import place
from structspec.grammars.regex import read_plain
from structspec.grammars.xgrammar_regexes import regex_body

_STRING = r'"(?:\\.|[^"\\\n\r])*"'
_NAME_START = r"(?<![\w.-])"  # names of rules have dots and dashes
_PIECES = re.compile(
    rf"""(?P<regex>{_NAME_START}Regex\s*\(\s*(?P<pattern>{_STRING})\s*\))
    |(?P<string>{_STRING})
    |(?P<class>\[(?:\\.|[^\]\\\n\r])*\])
    |\#[^\n\r]*
    |{_NAME_START}(?P<macro>TagDispatch|TokenTagDispatch|Token|ExcludeToken|Substring)\s*\(
    |(?P<assertion>\(=)
    |(?P<count>\{{[^{{}}"\n\r]*\}})
    |(?P<open>["\[])
    |(?P<foreign>[^\x00-\x7f])""",
    re.VERBOSE,
)
_ESCAPE = re.compile(
    r"\\(?:x(?P<x>[0-9a-fA-F]+)|u(?P<u>[0-9a-fA-F]{4})|U(?P<U>[0-9a-fA-F]{8})"
    r"|(?P<octal>0[0-9]+)|(?P<letter>.))"
)
_LETTERS = {"a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_LETTERS |= {"v": "\v", "0": "\0", "\\": "\\", '"': '"', "'": "'", "?": "?"}
_MAX_COUNT = 2**31 - 1


def prepare_ebnf(text: str) -> str:
    """The grammar with its regexes in the words that xgrammar reads right.

    Raises GrammarError, with the place, for what would be misread without a word: escapes of
    which it is not plain where they end, halves of characters, counts too large to be held,
    assertions; UnsupportedConstraint for macros that speak of more than text.
    """
    written: list[str] = []
    position = 0
    for match in _PIECES.finditer(text):
        if match["open"]:
            break  # xgrammar names what is not closed
        _check(text, match)
        if match["regex"]:
            written += [text[position : match.start()], _regex(text, match)]
            position = match.end()
    return "".join(written) + text[position:]


def _check(text: str, match: re.Match[str]) -> None:
    if match["macro"]:
        line, column = place(text, match.start())
        raise UnsupportedConstraint(
            f"{match['macro']}(...) cannot be part of a grammar; write rules and text",
            line=line,
            column=column,
        )
    if match["assertion"]:
        raise _error(text, match.start(), "an assertion (= …) is not held; write it as a rule")
    if match["foreign"]:
        reason = f"{match['foreign']!r} stands outside of text; names of rules are ASCII"
        raise _error(text, match.start(), reason)
    for number in re.finditer(r"\d+", match["count"] or ""):
        if int(number[0]) > _MAX_COUNT:
            position = match.start() + number.start()
            raise _error(text, position, f"a count is at most {_MAX_COUNT}")
    if match["string"] or match["class"]:
        for escape in _ESCAPE.finditer(match[0]):
            if not escape["letter"]:  # those it does not know xgrammar refuses
                _character(text, match.start() + escape.start(), escape)


def _regex(text: str, match: re.Match[str]) -> str:
    """`Regex("…")` as the library holds it, in the dialect of `Regex` constraints."""
    start = match.start("pattern")
    pattern = _ESCAPE.sub(
        lambda escape: _character(text, start + 1 + escape.start(), escape),
        match["pattern"][1:-1],
    )
    try:
        regex = read_plain(pattern)
    except GrammarError as error:
        line, column = place(text, start)
        raise type(error)(f"in this regex, {error}", line=line, column=column) from None
    return regex_body(regex)


def _character(text: str, position: int, escape: re.Match[str]) -> str:
    """What an escape stands for."""
    if escape["octal"]:
        raise _error(text, position, rf"{escape[0]} may mean two things; write \u0000 for NUL")
    if escape["letter"]:
        if escape["letter"] not in _LETTERS:
            reason = rf"a string has no escape {escape[0]}; a backslash in a regex is written \\"
            raise _error(text, position, reason)
        return _LETTERS[escape["letter"]]
    digits = escape["x"] or escape["u"] or escape["U"]
    if escape["x"] and len(digits) > 2:
        reason = rf"{escape[0]} may end behind its second digit or its last; write \u and four"
        raise _error(text, position, reason)
    code_point = int(digits, 16)
    if 0xD800 <= code_point <= 0xDFFF:
        reason = f"{escape[0]} is half a surrogate pair, no character; write \\U and eight digits"
        raise _error(text, position, reason)
    if code_point > sys.maxunicode:
        raise _error(text, position, f"{escape[0]} is no character")
    return chr(code_point)


def _error(text: str, position: int, message: str) -> GrammarError:
    line, column = place(text, position)
    return GrammarError(message, line=line, column=column)
