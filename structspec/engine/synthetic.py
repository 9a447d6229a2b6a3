"""Drafts accepted at a set rate, whatever the target says: for benchmarks."""

from __future__ import annotations

from collections.abc import Sequence

from structspec.engine.randomness import ACCEPT, uniforms


def count_accepted(
    chances: Sequence[float], seed: int, position: int, num_drafts: int, num_valid: int
) -> int:
    """How many of a request's drafts stand, by its seed and their positions alone.

    `chances[j]` is that of draft j where those before it stand; none at `num_valid` or behind does.
    """
    count = min(num_drafts, num_valid, len(chances))
    numbers = uniforms(seed, ACCEPT, position, count)
    for place, (number, chance) in enumerate(zip(numbers, chances[:count], strict=True)):
        if number >= chance:
            return place
    return count
