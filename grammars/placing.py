"""Findings and errors about a part of a constraint, with their place in the whole."""

from __future__ import annotations

from dataclasses import replace

from structspec.errors import GrammarError
from structspec.grammars.base import Finding


def within(pointer: str, finding: Finding) -> Finding:
    """A finding on a part, with its place in the whole."""
    return replace(finding, pointer=pointer + finding.pointer.removeprefix("#"))


def placed(error: GrammarError, pointer: str) -> GrammarError:
    """An error about a part, with its place in the whole; its kind stays."""
    message = str(error)
    if error.pointer is not None:
        message = message.removeprefix(f"{error.pointer}: ")
        pointer += error.pointer.removeprefix("#")
    moved = type(error)(message, pointer=pointer or None)
    moved.line, moved.column = error.line, error.column
    return moved
