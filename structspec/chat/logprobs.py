"""Logprobs as chat and completions tell them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from structspec.request import Request
from structspec.token_logprob import TokenLogprob
from structspec.token_spelling import Told, spelled
from structspec.vocabulary import Vocabulary

FLOOR = -9999.0  # JSON has no infinity


def to_entry(one: TokenLogprob) -> dict[str, Any]:
    """One of `logprobs.content`, of a token whose spelling is known."""
    return {**token_of(one, one.logprob), "top_logprobs": top_of(one)}


def token_of(one: Told, logprob: float) -> dict[str, Any]:
    """A token and how likely it is."""
    return _token(one.token_id, one.text, one.data, logprob)


def top_of(one: Told) -> list[dict[str, Any]]:
    """The likeliest at its place, in the same form."""
    others = zip(one.top, one.top_texts, one.top_data, strict=True)
    return [_token(token_id, text, data, own) for (token_id, own), text, data in others]


def _token(
    token_id: int | None, text: str | None, data: bytes | None, logprob: float
) -> dict[str, Any]:
    spelling = {"token": text, "bytes": None if data is None else [*data]}
    known = {} if token_id is None else {"id": token_id}  # as llama.cpp calls it
    return {**spelling, "logprob": max(logprob, FLOOR), **known}


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
        return [to_entry(one) for one in self.unread(self._request.logprobs)]

    def unread(self, told: list[Told]) -> tuple[Told, ...]:
        """What is new, since the last call, of what is told of each token, spelled."""
        reasoning = self._request.reasoning
        num_before = 0 if reasoning is None else reasoning.num_before
        new = told[self._num_read :]  # the engine only appends
        first, self._num_read = self._num_read, self._num_read + len(new)
        stops = self._vocabulary.stop_token_ids
        of_answer = [
            one
            for place, one in enumerate(new, first)
            if place >= num_before and one.token_id not in stops
        ]
        return spelled(of_answer, self._vocabulary)

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
