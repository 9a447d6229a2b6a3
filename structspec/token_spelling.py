"""What the tokens spell that logprobs and details are told of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from structspec.token_detail import TokenDetail
from structspec.token_logprob import TokenLogprob
from structspec.vocabulary import Vocabulary

Told = TypeVar("Told", TokenLogprob, TokenDetail)


def spelled(told: Sequence[Told], vocabulary: Vocabulary) -> tuple[Told, ...]:
    """The same, with the texts and bytes of their tokens; special ones are spelled by name."""
    ids = {one.token_id for one in told} | {other for one in told for other, _ in one.top}
    data = {token_id: vocabulary.spell_bytes([token_id]) for token_id in ids}
    texts = {token_id: spelling.decode(errors="replace") for token_id, spelling in data.items()}
    return tuple(
        replace(
            one,
            text=texts[one.token_id],
            data=data[one.token_id],
            top_texts=tuple(texts[token_id] for token_id, _ in one.top),
            top_data=tuple(data[token_id] for token_id, _ in one.top),
        )
        for one in told
    )
