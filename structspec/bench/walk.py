"""Walking a text through a matcher token by token, as a model would write it."""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from structspec.vocabulary import Vocabulary


class Walker(Protocol):
    """What a walk needs of a matcher; the bare libraries have no more."""

    def fill(self, bitmask: np.ndarray[tuple[int, int], np.dtype[np.int32]], row: int) -> None:
        """Write the allowed next tokens into `bitmask[row]`."""

    def accept(self, token_id: int) -> bool:
        """Advance by one token; False when it is refused."""


class Disagreement(Exception):
    """A token's bit in the row says one thing and accepting the token another."""


@dataclass(frozen=True, slots=True)
class Walked:
    """How far a text came: `num_accepted` tokens, and whether it could end behind the last."""

    num_accepted: int
    is_complete: bool


def walk(
    matcher: Walker,
    token_ids: Sequence[int],
    vocabulary: Vocabulary,
    mask_us: array[float],
) -> Walked:
    """Take the tokens until one is refused, then a stop token; each fill's time is appended.

    Raises Disagreement when mask and accept differ on a token.
    """
    bitmask = np.zeros((1, vocabulary.num_words), np.int32)
    allowed = bitmask.view(np.uint8).reshape(-1).data  # plain bytes: quick to index
    clock = time.perf_counter_ns
    for position, token_id in enumerate(token_ids):
        start = clock()
        matcher.fill(bitmask, 0)
        mask_us.append((clock() - start) / 1e3)
        is_allowed = allowed[token_id >> 3] >> (token_id & 7) & 1
        if matcher.accept(token_id) != is_allowed:
            raise _disagreement(vocabulary, token_ids[: position + 1], bool(is_allowed))
        if not is_allowed:
            return Walked(position, False)
    start = clock()
    matcher.fill(bitmask, 0)
    mask_us.append((clock() - start) / 1e3)
    stop = vocabulary.stop_token_ids[0]
    is_complete = bool(allowed[stop >> 3] >> (stop & 7) & 1)
    if matcher.accept(stop) != is_complete:
        raise _disagreement(vocabulary, [*token_ids, stop], is_complete)
    return Walked(len(token_ids), is_complete)


def _disagreement(
    vocabulary: Vocabulary, token_ids: Sequence[int], is_allowed: bool
) -> Disagreement:
    before = vocabulary.decode_bytes(token_ids[:-1])[-60:]
    token = vocabulary.token_bytes[token_ids[-1]]
    mask, accept = ("allows", "refuses") if is_allowed else ("forbids", "takes")
    return Disagreement(
        f"mask and accept disagree: behind {before!r} the mask {mask} {token!r}, accept {accept} it"
    )
