"""What a server tells of single tokens, as LLM tells it: how likely they were, where from.

    logprobs         {"content": [{"token", "bytes", "logprob", "top_logprobs", "id"}]} of a choice
    token_details    {"tokens": [{…, "origin", "drafter", "masked_logprob", "top"}]} of a choice
    prompt_logprobs  [null, {"<id>": {"logprob", "rank", "decoded_token", "bytes"}}] of an answer

The first is OpenAI's, with an id where llama.cpp or our own server tells it; the second our own;
the third vLLM's, in whose objects the prompt's own token comes first, and it may be unranked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from structspec.client.reading import reading
from structspec.errors import ServerError
from structspec.token_detail import Origin, TokenDetail
from structspec.token_logprob import TokenLogprob

Object = Mapping[str, Any]


@dataclass(slots=True)
class ToldTokens:
    """What was told, as it came: looked into only where it was asked for."""

    logprobs: list[Any] = field(default_factory=list)
    token_details: list[Any] = field(default_factory=list)
    prompt_logprobs: list[Any] = field(default_factory=list)

    def take(self, choice: Object) -> None:
        """What a choice, or a piece of one, says of tokens."""
        self.logprobs += _told(choice.get("logprobs"))
        self.token_details += _told(choice.get("structspec"))

    def take_prompt(self, body: Object) -> None:
        """What stands beside all choices."""
        self.prompt_logprobs += _told(body.get("prompt_logprobs"))


def token_fields(
    told: ToldTokens, asked: Mapping[str, Any], *, has_text: bool
) -> dict[str, tuple[Any, ...]]:
    """The fields of a Generation that were asked for; raises ServerError if one was not told.

    An answer without text need have none: it may be calls, of whose tokens some servers are silent.
    """
    fields: dict[str, tuple[Any, ...]] = {}
    for name, read in _READ.items():
        num_top = asked.get(name)
        if num_top is None:
            continue
        pieces = getattr(told, name)
        with reading(name, pieces):
            fields[name] = tuple(entry for piece in pieces for entry in read(piece, num_top))
        if not (fields[name] or _may_be_silent(name, pieces, has_text=has_text)):
            raise ServerError(
                f"the server tells no {name} though it was asked for them: leave {name}= out,"
                " or ask a server that has them"
            )
    return fields


def _may_be_silent(name: str, pieces: Sequence[Any], *, has_text: bool) -> bool:
    """Of a prompt of one token nothing is told, in so many words; of no text nothing at all."""
    return bool(pieces) if name == "prompt_logprobs" else not has_text


def _told(value: Any) -> list[Any]:
    return [] if value is None else [value]


def _logprobs(piece: Object, num_top: int) -> Iterator[TokenLogprob]:
    for entry in piece.get("content") or ():
        yield TokenLogprob(
            _id(entry),
            _number(entry["logprob"]),
            text=_text(entry["token"]),
            data=_data(entry),
            **_top(entry.get("top_logprobs") or (), num_top),
        )


def _details(piece: Object, num_top: int) -> Iterator[TokenDetail]:
    for entry in piece["tokens"]:
        if entry["origin"] not in get_args(Origin):
            raise ValueError(entry["origin"])
        yield TokenDetail(
            int(entry["id"]),
            entry["origin"],
            entry["drafter"],
            _number(entry["logprob"]),
            _number(entry["masked_logprob"]),
            text=_text(entry["token"]),
            data=_data(entry),
            **_top(entry["top"], num_top),
        )


def _prompt(piece: Sequence[Any], num_top: int) -> Iterator[TokenLogprob]:
    for by_id in piece:
        if by_id is None:  # in place of the first token
            continue
        own, *others = (
            {**one, "id": int(token_id), "token": one["decoded_token"]}
            for token_id, one in by_id.items()
        )
        ranked = [one for one in (own, *others) if one["rank"] and one["rank"] <= num_top]
        yield TokenLogprob(
            own["id"],
            _number(own["logprob"]),
            text=_text(own["token"]),
            data=_data(own),
            **_top(ranked, num_top),
        )


def _top(entries: Sequence[Object], num_top: int) -> dict[str, Any]:
    """The likeliest first: vLLM begins with the token itself. Some servers tell one at least."""
    best = sorted(entries, key=lambda one: -_number(one["logprob"]))[:num_top]
    return {
        "top": tuple((_id(one), _number(one["logprob"])) for one in best),
        "top_texts": tuple(_text(one["token"]) for one in best),
        "top_data": tuple(_data(one) for one in best),
    }


def _id(entry: Object) -> int | None:
    token_id = entry.get("id")
    return token_id if type(token_id) is int else None


def _number(value: Any) -> float:
    if type(value) not in (int, float) or math.isnan(value):
        raise TypeError(f"{value!r} is no logprob")
    return float(value)


def _text(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{value!r} is no text of a token")
    return value


def _data(entry: Object) -> bytes | None:
    data = entry.get("bytes")
    if data is None:
        return None
    if not isinstance(data, list):
        raise TypeError(f"{data!r} are no bytes of a token")
    return bytes(data)


_READ: dict[str, Callable[[Any, int], Iterator[Any]]] = {
    "logprobs": _logprobs,
    "token_details": _details,
    "prompt_logprobs": _prompt,
}
