"""Grammars whose matchers have followers, and rows filled both ways."""

from __future__ import annotations

from functools import cache

import numpy as np

from structspec.bitmask import allocate_bitmask, unpack_row
from structspec.constraint import JsonSchema, Tools
from structspec.grammars.base import FillJob, Matcher
from structspec.grammars.llguidance import LLGuidanceBackend, LLGuidanceGrammar
from structspec.grammars.llguidance_batch import inner_of
from structspec.vocabulary import Vocabulary
from tests.grammars.cases import CASES, VOCABULARIES

NAMES = [(name, constraint) for library, name, constraint in CASES if library == "llguidance"]
SPECIAL = {
    "names": Tools([{"name": "ab"}], "mistral", "required"),
    "keys": JsonSchema({"type": "object", "additionalProperties": {"type": "integer"}}),
}


@cache
def followed_backend(vocabulary_name: str) -> LLGuidanceBackend:
    return LLGuidanceBackend(
        VOCABULARIES[vocabulary_name](), parallel_above_s=0.0, num_threads=3, has_followers=True
    )


@cache
def followed_grammar(vocabulary_name: str, name: str) -> LLGuidanceGrammar:
    """One grammar for all tests: followers come back to it and are used again."""
    return followed_backend(vocabulary_name).compile(dict(NAMES)[name])


def followed_matchers(grammar: LLGuidanceGrammar, num_matchers: int) -> list[Matcher]:
    """Matchers that have their followers."""
    for _ in range(max(2, num_matchers)):
        grammar.expect()
    grammar.followers.wait()
    matchers = [grammar.matcher() for _ in range(max(2, num_matchers))]
    assert all(inner_of(matcher).ask_for_follower() is not None for matcher in matchers)
    return matchers[:num_matchers]


@cache
def special_grammars(name: str):
    """A backend of bytes, a name and two stop tokens; a grammar with followers and one without."""
    tokens = (*(bytes([i]) for i in range(256)), None, None, None)
    names = {"[TOOL_CALLS]": 256}
    vocabulary = Vocabulary(tokens, (257, 258), lambda text: list(text.encode()), names)
    followed, other = (
        LLGuidanceBackend(vocabulary, parallel_above_s=0.0, num_threads=2, has_followers=has)
        for has in (True, False)
    )
    grammar, fresh = (each.compile(SPECIAL[name]) for each in (followed, other))
    return followed, grammar, fresh


def fill_all(filler: LLGuidanceBackend, matchers: list[Matcher]) -> np.ndarray:
    bitmask = allocate_bitmask(len(matchers), filler.vocabulary.vocab_size)
    bitmask[:] = -1
    filler.fill_drafts([FillJob(m, i, ()) for i, m in enumerate(matchers)], bitmask)
    return bitmask


def rows_of(filler: LLGuidanceBackend, matchers: list[Matcher]) -> np.ndarray:
    bitmask = allocate_bitmask(len(matchers), filler.vocabulary.vocab_size)
    for row, matcher in enumerate(matchers):
        matcher.fill(bitmask, row)
    return bitmask


def pick(row: np.ndarray, vocab_size: int, number: int) -> int:
    allowed = np.flatnonzero(unpack_row(row, vocab_size))
    return int(allowed[number % len(allowed)])
