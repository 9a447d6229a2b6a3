"""Where one token of an output came from, and what else might have stood in its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Origin = Literal["forced", "drafted", "recovered", "sampled"]


@dataclass(frozen=True, slots=True)
class TokenDetail:
    """How a token came to be written, and how likely it was with and without its mask.

    "forced": the grammar's own text, drafted and accepted. "drafted": accepted too, `drafter` says
    whose. "recovered": drawn where a draft was rejected. "sampled": drawn where none was.

    `logprob` is to the model itself, `masked_logprob` in what the token was drawn from ("raw" and
    "processed" logprobs). `top` are the likeliest of what was allowed in its place, with theirs.
    What they all spell is told as in TokenLogprob.
    """

    token_id: int
    origin: Origin
    drafter: str | None
    logprob: float
    masked_logprob: float
    top: tuple[tuple[int, float], ...] = ()
    text: str | None = None
    data: bytes | None = None
    top_texts: tuple[str | None, ...] = ()
    top_data: tuple[bytes | None, ...] = ()
