"""Random walks through the mask of a matcher, byte by byte."""

from __future__ import annotations

from random import Random

import numpy as np
from numpy.typing import NDArray

from structspec.bitmask import allocate_bitmask, unpack_row
from structspec.grammars.base import Matcher
from tests.fuzz.judge import STOP

VOCAB_SIZE = 257
_CLOSING = frozenset(b'"]}')
_USUAL = frozenset(range(0x20, 0x7F))


def row_of(matcher: Matcher) -> NDArray[np.bool_]:  # [VOCAB_SIZE]
    """Which tokens the mask allows."""
    bitmask = allocate_bitmask(1, VOCAB_SIZE)
    matcher.fill(bitmask, 0)
    return np.array(unpack_row(bitmask[0], VOCAB_SIZE))


def walk(matcher: Matcher, random: Random, max_steps: int = 300) -> bytes | None:
    """A finished text the mask led to; None where it was still open after so many steps.

    The longer it gets the likelier is what ends something.
    """
    text = bytearray()
    for step in range(max_steps):
        token_id = _next(row_of(matcher), random, haste=step / 60)
        assert matcher.accept(token_id), (bytes(text), token_id)
        if token_id == STOP:
            return bytes(text)
        text.append(token_id)
    return None


def _next(row: NDArray[np.bool_], random: Random, haste: float) -> int:
    allowed = [int(token_id) for token_id in np.flatnonzero(row)]
    assert allowed, "a row that allows nothing"
    if STOP in allowed and random.random() < 0.5:
        return STOP
    if random.random() < haste:
        closing = [token_id for token_id in allowed if token_id in _CLOSING]
        return random.choice(closing or allowed)
    usual = [token_id for token_id in allowed if token_id in _USUAL]
    return random.choice(usual if usual and random.random() < 0.9 else allowed)


def check_row(matcher: Matcher) -> None:
    """Each token is taken exactly where its bit is set, and taking it can be undone."""
    row = row_of(matcher)
    for token_id in range(VOCAB_SIZE):
        is_taken = matcher.accept(token_id)
        assert is_taken == row[token_id], token_id
        if is_taken:
            matcher.rollback(1)
    assert (row_of(matcher) == row).all()
