"""Drafts accepted at a set rate, whatever the target says: the method "synthetic"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from structspec.engine.batch import Batch, Draft, Mask
from structspec.engine.randomness import ACCEPT, draw_position, uniforms


def accept_some(batch: Batch, draft: Draft, mask: Mask, chances: Sequence[float]) -> Mask:
    """The mask, `num_valid` being how many guesses of each request are to be accepted.

    `chances[j]` is that of guess j where those before it are. None that the grammar forbids is.
    """
    counts = [
        _count(
            chances[: min(len(guesses), num_valid)],
            scheduled.request.seed,
            draw_position(scheduled, num_certain),
        )
        for scheduled, guesses, num_valid, num_certain in zip(
            batch.requests, draft.guesses, mask.num_valid, draft.num_certain, strict=True
        )
    ]
    return replace(mask, num_valid=counts)


def _count(chances: Sequence[float], seed: int, position: int) -> int:
    numbers = uniforms(seed, ACCEPT, position, len(chances))
    for place, (number, chance) in enumerate(zip(numbers, chances, strict=True)):
        if number >= chance:
            return place
    return len(chances)
