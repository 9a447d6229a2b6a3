"""How likely a prompt's tokens were, as vLLM tells it: one object for each token, by token ids."""

from __future__ import annotations

from typing import Any

from structspec.chat.logprobs import FLOOR
from structspec.request import Request
from structspec.token_logprob import TokenLogprob
from structspec.token_spelling import spelled
from structspec.vocabulary import Vocabulary


def prompt_fields(request: Request, vocabulary: Vocabulary) -> dict[str, Any]:
    """The field `prompt_logprobs` of an answer: nothing for the first token; none if not asked."""
    if request.params.prompt_logprobs is None:
        return {}
    told = spelled(request.prompt_logprobs, vocabulary)
    return {"prompt_logprobs": [None, *map(_by_id, told)]}


def _by_id(one: TokenLogprob) -> dict[str, Any]:
    """The token itself comes first; its rank is known where it is among the likeliest."""
    own = _told(one.logprob, None, one.text, one.data)
    top = zip(one.top, one.top_texts, one.top_data, strict=True)
    others = {
        str(token_id): _told(logprob, rank, text, data)
        for rank, ((token_id, logprob), text, data) in enumerate(top, 1)
    }
    return {str(one.token_id): own, **others}


def _told(logprob: float, rank: int | None, text: str | None, data: bytes | None) -> dict[str, Any]:
    spelling = {"decoded_token": text, "bytes": None if data is None else [*data]}
    return {"logprob": max(logprob, FLOOR), "rank": rank, **spelling}
