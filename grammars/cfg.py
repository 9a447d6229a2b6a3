"""Context-free grammars: which dialect a text is written in, and what it may not refer to."""

from __future__ import annotations

import re
from typing import Literal, get_args

from structspec.constraint import Dialect, Grammar, find_half_character
from structspec.errors import GrammarError, UnsupportedConstraint

# what a bracket inside may not be mistaken for, then the references to special tokens
_LARK_PARTS = re.compile(
    r'"(?:\\.|[^"\\\n])*"|/(?![/*])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n])+/|//[^\n]*|#[^\n]*|(?P<token><)'
)


def dialect_of(constraint: Grammar) -> Literal["lark", "ebnf"]:
    """The dialect that was named, else EBNF where rules are written with `::=`."""
    if not isinstance(constraint.text, str):
        raise GrammarError(f"a grammar is a string, not {constraint.text!r}")
    if not constraint.text.strip():
        raise GrammarError("the grammar is empty")
    if constraint.dialect not in get_args(Dialect):
        names = ", ".join(get_args(Dialect))
        raise GrammarError(f"dialect must be one of {names}, not {constraint.dialect!r}")
    check_characters(constraint.text)
    _check_is_text(constraint.text)
    if constraint.dialect != "auto":
        return constraint.dialect
    return "ebnf" if re.search(r"^\s*[\w.-]+\s*::=", constraint.text, re.MULTILINE) else "lark"


def check_lark(text: str) -> None:
    """Raise UnsupportedConstraint where Lark text names a special token, as `<|im_end|>`."""
    for match in _LARK_PARTS.finditer(text):
        if match["token"] is not None:
            line, column = place(text, match.start())
            raise UnsupportedConstraint(
                "special tokens cannot be part of a grammar; write text", line=line, column=column
            )


def check_characters(text: str) -> None:
    """Raise GrammarError, with the place, where text holds half a character."""
    offset = find_half_character(text)
    if offset is not None:
        line, column = place(text, offset)
        raise GrammarError(
            f"{text[offset]!r} is half a surrogate pair, no character", line=line, column=column
        )


def _check_is_text(text: str) -> None:
    """Raise GrammarError, with the place, for what libraries take as the end of a text or pass."""
    offset = text.find("\0")
    if offset >= 0:
        line, column = place(text, offset)
        raise GrammarError("a NUL character; write it as an escape", line=line, column=column)
    if text.startswith("\ufeff"):
        raise GrammarError("a byte order mark; read the file as utf-8-sig", line=1, column=1)


def place(text: str, offset: int) -> tuple[int, int]:
    """Line and column, from 1, of a character."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)
