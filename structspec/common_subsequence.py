"""How much of a predicted output was written, whatever stands between."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence


def count_common(predicted: Sequence[int], written: Sequence[int]) -> int:
    """The length of the longest common subsequence, each token a step over a row of bits.

    A bit of `row` is 0 where that place's token lengthens the subsequence (Hyyrö 2004).
    """
    places = _bits_of(predicted, set(written))
    everywhere = (1 << len(predicted)) - 1
    row = everywhere
    for token_id in written:
        matches = row & places[token_id] if token_id in places else 0
        row = ((row + matches) | (row - matches)) & everywhere
    return len(predicted) - row.bit_count()


def _bits_of(token_ids: Sequence[int], wanted: Collection[int]) -> dict[int, int]:
    """By each wanted token that is there a bit for each of its places; linear for each of them."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    for place, token_id in enumerate(token_ids):
        if token_id in wanted:
            found[token_id].append(place)
    bits = {}
    for token_id, places in found.items():
        row = bytearray(places[-1] // 8 + 1)
        for place in places:
            row[place // 8] |= 1 << place % 8
        bits[token_id] = int.from_bytes(row, "little")
    return bits
