"""Logprobs as chat and completions tell them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from structspec.request import Request
from structspec.token_detail import TokenDetail
from structspec.token_logprob import TokenLogprob
from structspec.vocabulary import Vocabulary

FLOOR = -9999.0  # JSON has no infinity

_Told = TypeVar("_Told", TokenLogprob, TokenDetail)


class LogprobsReader:
    """Those of one request's answer as they come: without its reasoning and stop tokens."""

    def __init__(self, request: Request, vocabulary: Vocabulary) -> None:
        self._request = request
        self._vocabulary = vocabulary
        self._num_read = 0

    @property
    def is_on(self) -> bool:
        """Whether they were asked for."""
        return self._request.params.logprobs is not None

    def take(self) -> list[dict[str, Any]]:
        """New entries of `logprobs.content`."""
        return [self._entry(one) for one in self.take_raw()]

    def take_raw(self) -> list[TokenLogprob]:
        """New ones as the engine has them."""
        return self.unread(self._request.logprobs)

    def unread(self, told: list[_Told]) -> list[_Told]:
        """What is new, since the last call, of what is told of each token."""
        reasoning = self._request.reasoning
        num_before = 0 if reasoning is None else reasoning.num_before
        new = told[self._num_read :]  # the engine only appends
        first, self._num_read = self._num_read, self._num_read + len(new)
        stops = self._vocabulary.stop_token_ids
        return [
            one
            for place, one in enumerate(new, first)
            if place >= num_before and one.token_id not in stops
        ]

    def _entry(self, one: TokenLogprob) -> dict[str, Any]:
        top = [self.token(token_id, logprob) for token_id, logprob in one.top]
        return {**self.token(one.token_id, one.logprob), "top_logprobs": top}

    def token(self, token_id: int, logprob: float) -> dict[str, Any]:
        """A token and how likely it is."""
        data = self._vocabulary.spell_bytes([token_id])
        text = data.decode("utf-8", "replace")
        return {"token": text, "bytes": [*data], "logprob": max(logprob, FLOOR)}

    def columns(self) -> dict[str, Any]:
        """All of them as /v1/completions has them."""
        entries = self.take()
        texts = [entry["token"] for entry in entries]
        top = [{one["token"]: one["logprob"] for one in e["top_logprobs"]} for e in entries]
        return {
            "tokens": texts,
            "token_logprobs": [entry["logprob"] for entry in entries],
            "top_logprobs": top,
            "text_offset": [*_offsets(texts)],
        }


def _offsets(texts: Sequence[str]) -> Iterator[int]:
    offset = 0
    for text in texts:
        yield offset
        offset += len(text)
