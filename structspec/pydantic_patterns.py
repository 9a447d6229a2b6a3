"""Pydantic's patterns, which are Rust's, beside those of JSON schemas, which are ECMA-262's."""

from __future__ import annotations

import re

from structspec.errors import GrammarError
from structspec.grammars.regexes.reader import read
from structspec.json_patterns import compile_pattern

_ESCAPE = re.compile(r"\\.", re.DOTALL)
_BRACKET_FIRST = re.compile(r"\[\^?\]")  # Rust: a set with a bracket; ECMA-262: an empty one


def is_ecma_too(pattern: str) -> bool:
    """Whether a pattern of Rust's means about the same in a JSON schema.

    False for sets inside of sets, with `&&`, `--` and `~~`, and for what ECMA-262 has no word for.
    """
    if _BRACKET_FIRST.search(_ESCAPE.sub("", pattern)):
        return False
    try:
        read(pattern, "rust")
        compile_pattern(pattern)
    except GrammarError:
        return False
    return True
