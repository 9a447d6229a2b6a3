"""From a pattern's text to the regex it means."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from structspec.errors import GrammarError, UnsupportedConstraint
from structspec.grammars.cfg import place
from structspec.grammars.regexes.lookaround import build
from structspec.grammars.regexes.pattern import Look, walk
from structspec.grammars.regexes.reader import read
from structspec.grammars.regexes.syntax import Regex


@lru_cache(maxsize=512)
def parse_search(pattern: str) -> Regex:
    """The texts in which an ECMA-262 pattern is found: what `pattern` means in a JSON schema.

    Raises GrammarError with line and column for malformed text, UnsupportedConstraint for what no
    finite automaton holds.
    """
    return build(read(pattern, "lenient"), pattern, searches=True)


@lru_cache(maxsize=512)
def parse_full(pattern: str, dialect: Literal["python", "rust"] = "python") -> Regex:
    r"""The texts that match from end to end, in Python's dialect with `\d` and `\w` ASCII.

    Raises GrammarError with line and column for malformed text, UnsupportedConstraint for what no
    finite automaton holds.
    """
    if not isinstance(pattern, str):
        raise GrammarError(f"a regex is a string, not {pattern!r}")
    return build(read(pattern, dialect), pattern, searches=False)


def lookaround_error(
    pattern: str, dialect: Literal["python", "rust"] = "python"
) -> UnsupportedConstraint:
    """For libraries that know no And and Not: names the first lookaround of a full match."""
    looks = [node for node in walk(read(pattern, dialect)) if isinstance(node, Look)]
    first = min(looks, key=lambda look: look.position)
    line, column = place(pattern, first.position)
    side = "lookahead" if first.is_ahead else "lookbehind"
    return UnsupportedConstraint(
        f"{side} is more than this library holds; llguidance does", line=line, column=column
    )
