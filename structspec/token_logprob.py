"""How likely a model found one token, and which it found likelier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# None where a server does not tell it; typed so that who asks an engine need not look for that
TokenId = int | Any


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """The natural logarithm of a token's probability, and the best alternatives at its place.

    `top` holds them with theirs, the likeliest first, the token itself among them where it belongs
    there; fewer than were asked for where no more are possible. `text` is what the token spells and
    `data` its bytes, which need not be whole characters; `top_texts` and `top_data` are those of
    `top`. What a server does not tell of them, as ids and bytes, is None.
    """

    token_id: TokenId
    logprob: float
    top: tuple[tuple[TokenId, float], ...] = ()
    text: str | None = None
    data: bytes | None = None
    top_texts: tuple[str | None, ...] = ()
    top_data: tuple[bytes | None, ...] = ()
