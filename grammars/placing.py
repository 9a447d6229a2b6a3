"""Findings and errors about a part of a constraint, with their place in the whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from structspec.errors import GrammarError
from structspec.grammars.base import Finding


def within(pointer: str, finding: Finding) -> Finding:
    """A finding on a part, with its place in the whole."""
    return replace(finding, pointer=pointer + finding.pointer.removeprefix("#"))


_OTHER = {"ebnf": "lark", "lark": "ebnf"}
_NAMES = {"ebnf": "EBNF", "lark": "Lark", "regex": "a regex in Python's dialect"}


def placed(
    error: GrammarError, pointer: str, dialect: Literal["ebnf", "lark", "regex", ""] = ""
) -> GrammarError:
    """An error about a part, with its place in the whole and how it was read; its kind stays."""
    message = str(error)
    if dialect:
        other = _OTHER.get(dialect)
        hint = "" if other is None else f'; "syntax": "{other}" reads {_NAMES[other]}'
        message += f" (read as {_NAMES[dialect]}{hint})"
    if error.pointer is not None:
        message = message.removeprefix(f"{error.pointer}: ")
        pointer += error.pointer.removeprefix("#")
    moved = type(error)(message, pointer=pointer or None)
    moved.line, moved.column = error.line, error.column
    return moved
