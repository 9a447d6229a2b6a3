"""How likely a model found one token, and which it found likelier."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """The natural logarithm of a token's probability, and the best alternatives at its place.

    `top` holds them with theirs, the likeliest first, the token itself among them where it belongs
    there; fewer than were asked for where no more are possible.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()
