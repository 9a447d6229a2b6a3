"""Trying a fresh grammar before it is called ready: compiling alone does not show that it works."""

from __future__ import annotations

import numpy as np

from structspec.errors import GrammarError
from structspec.grammars.base import CompiledGrammar, MatcherFailed
from structspec.grammars.drafts import allowed_tokens
from structspec.vocabulary import Vocabulary

_NUM_TOKENS = 3  # an unproductive rule fails at the first or second


def probe(grammar: CompiledGrammar, vocabulary: Vocabulary) -> None:
    """Fill the first masks and take the first tokens; GrammarError where there are none."""
    matcher = grammar.matcher()
    bitmask = np.zeros((1, vocabulary.num_words), np.int32)
    try:
        for num_taken in range(_NUM_TOKENS):
            matcher.fill(bitmask, 0)
            token_id = next(filter(vocabulary.is_text, allowed_tokens(bitmask, 0)), None)
            if not num_taken and not bitmask.any():
                raise _no_text()
            if token_id is None:  # only the end is left, or this branch leads nowhere
                return
            if not matcher.accept(token_id):
                raise _no_text()
    except MatcherFailed:
        raise _no_text() from None


def _no_text() -> GrammarError:
    return GrammarError("no text at all satisfies this constraint (does it recurse forever?)")
