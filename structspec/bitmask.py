"""Layout of the bitmask rows of one step.

Sampled requests have 1 + num_drafts logits rows each, in batch order; only constrained ones
have bitmask rows. Three requests, the middle one free, with drafts `a b`, `x` and none:

    logits row        0     1     2   |   3     4   |   5
    judges            a     b   bonus |   x   bonus | bonus
    request           0     0     0   |   1     1   |   2
    bitmask row       0     1     2   |             |   3          rows = 0 1 2 5
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray


def allocate_bitmask(num_rows: int, vocab_size: int) -> NDArray[np.int32]:
    """Rows that allow nothing."""
    return np.zeros((num_rows, (vocab_size + 31) // 32), np.int32)


def first_logits_rows(num_drafts: Sequence[int], is_sampled: Sequence[bool]) -> list[int]:
    """The first logits row of each scheduled request, or where it would be for unsampled ones."""
    counts = [1 + n if sampled else 0 for n, sampled in zip(num_drafts, is_sampled, strict=True)]
    return [0, *accumulate(counts)][: len(counts)]


def unpack_row(row: NDArray[np.int32], vocab_size: int) -> NDArray[np.bool_]:
    """One bool per token: bit v % 32 of word v // 32."""
    bits = np.unpackbits(row.view(np.uint8), bitorder="little")
    return bits[:vocab_size].astype(bool)


def pack_row(allowed: NDArray[np.bool_], row: NDArray[np.int32]) -> None:
    """Write one bool per token into a row."""
    row[:] = 0
    packed = np.packbits(allowed, bitorder="little")
    row.view(np.uint8)[: len(packed)] = packed
