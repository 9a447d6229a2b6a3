"""How much of a predicted output was written, whatever stands between."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence


def count_common(predicted: Sequence[int], written: Sequence[int]) -> int:
    """The length of the longest common subsequence, each token a step over a row of bits.

    A bit of `row` is 0 where that place's token lengthens the subsequence (Hyyrö 2004).
    """
    places: defaultdict[int, int] = defaultdict(int)
    for place, token_id in enumerate(predicted):
        places[token_id] |= 1 << place
    everywhere = (1 << len(predicted)) - 1
    row = everywhere
    for token_id in written:
        matches = row & places[token_id] if token_id in places else 0
        row = ((row + matches) | (row - matches)) & everywhere
    return len(predicted) - row.bit_count()
