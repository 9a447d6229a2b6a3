"""Random numbers that hang on a seed and a position alone: drafts and neighbours change none.

One number is SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) started at a mix of the seed, what the
number is for, and the position of the token in its request's output.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from structspec.engine.batch import ScheduledRequest

# what a number is for: those of one position must not depend on each other
DRAW, ACCEPT, DRAW_UNSEEN = 1, 2, 3

_MASK = 2**64 - 1
_GAMMA = 0x9E3779B97F4A7C15


def uniforms(seed: int, purpose: int, position: int, count: int) -> list[float]:
    """Numbers in [0, 1) with 53 random bits, one for each of `count` positions."""
    stream = _mix(_mix(seed + _GAMMA) + purpose * _GAMMA)
    return [
        (_mix(stream + (index + 1) * _GAMMA) >> 11) * 2.0**-53
        for index in range(position, position + count)
    ]


def draw_position(scheduled: ScheduledRequest, num_certain: int) -> int:
    """Where in its output a request's first row of a step draws a token."""
    num_before = scheduled.first_position + scheduled.num_tokens + num_certain
    return num_before - scheduled.request.num_prompt_tokens


def _mix(value: int) -> int:
    value &= _MASK
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) & _MASK
    return value ^ value >> 31
