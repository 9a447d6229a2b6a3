"""Random walks through masks of bytes."""

from __future__ import annotations

import random

import numpy as np

from structspec.bitmask import allocate_bitmask, unpack_row
from structspec.grammars.base import Matcher
from tests.grammars.json_texts import STOP

SOON = 24  # bytes, after which a walk takes every way out
CLOSERS = (STOP, *b'"}]<')


def walk(matcher: Matcher, random_: random.Random) -> str | None:
    """A text that the masks allow, of likely and unlikely bytes; None if it does not end soon."""
    data = bytearray()
    bitmask = allocate_bitmask(1, STOP + 1)
    while len(data) < 8 * SOON:
        forced = matcher.forced(64)
        assert all(map(matcher.accept, forced))
        data += forced
        matcher.fill(bitmask, 0)
        choices = np.flatnonzero(unpack_row(bitmask[0], STOP + 1)).tolist()
        if len(data) > SOON:
            choices = [t for t in CLOSERS if t in choices][:1] or choices
        elif random_.random() < 0.6:
            choices = [t for t in choices if 32 <= t < 127 or t == STOP] or choices
        token_id = random_.choice(choices)
        assert matcher.accept(token_id)
        if token_id == STOP:
            return data.decode()
        data.append(token_id)
    return None
