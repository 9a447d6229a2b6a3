"""From a pattern's text to the regex it means."""

from __future__ import annotations

from functools import lru_cache

from structspec.errors import GrammarError
from structspec.grammars.regexes.lookaround import build
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
def parse_full(pattern: str) -> Regex:
    r"""The texts that match from end to end, in Python's dialect with `\d` and `\w` ASCII.

    Raises GrammarError with line and column for malformed text, UnsupportedConstraint for what no
    finite automaton holds.
    """
    if not isinstance(pattern, str):
        raise GrammarError(f"a regex is a string, not {pattern!r}")
    return build(read(pattern, "python"), pattern, searches=False)
