"""The bodies of /v1/chat/completions: whole, and in pieces with every field that SDKs look for."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from json.encoder import encode_basestring
from typing import Any

import structspec
from structspec.call_reader import AnswerText, ArgumentsText, CallBegins, CallReader, Event
from structspec.request import Request
from structspec.server.sse import dump, one_line

FINGERPRINT = f"structspec-{structspec.__version__}"


@dataclass(frozen=True, slots=True)
class Head:
    """What all pieces of one answer have in common."""

    model: str
    response_id: str = field(default_factory=lambda: f"chatcmpl-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))

    def fields(self, kind: str) -> dict[str, Any]:
        """Those at the top of a body."""
        return {
            "id": self.response_id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "service_tier": None,
            "system_fingerprint": FINGERPRINT,
        }


@dataclass(slots=True)
class Message:
    """One choice's text and calls, as events add to them."""

    text: list[str] = field(default_factory=list)
    reasoning: str | None = None
    calls: list[dict[str, Any]] = field(default_factory=list)

    def add(self, events: Iterator[Event]) -> None:
        """Take in what a reader says."""
        for event in events:
            match event:
                case AnswerText():
                    self.text.append(event.text)
                case CallBegins():
                    self.calls.append(begun_call(event))
                case ArgumentsText():
                    self.calls[event.index]["function"]["arguments"] += event.text

    def body(self) -> dict[str, Any]:
        """As a client reads it."""
        text = "".join(self.text)
        content = text if text or not self.calls else None
        message: dict[str, Any] = {
            "role": "assistant",
            "content": content,
            "refusal": None,
            "annotations": [],
        }
        if self.reasoning is not None:
            message |= reasoning_fields(self.reasoning)
        return {**message, "tool_calls": self.calls} if self.calls else message


def reasoning_fields(text: str) -> dict[str, Any]:
    """Reasoning under both names that clients know."""
    return {"reasoning": text, "reasoning_content": text}


def begun_call(event: CallBegins) -> dict[str, Any]:
    """A call without arguments yet."""
    call_id = f"call_{secrets.token_hex(12)}"
    function = {"name": event.name, "arguments": ""}
    return {"id": call_id, "type": "function", "function": function}


def read_message(text: str, reader: CallReader | None) -> Message:
    """The message that a text is."""
    message = Message()
    if reader is None:
        message.text.append(text)
    else:
        message.add(reader.feed(text))
        message.add(reader.finish())
    return message


def finish_reason(request: Request, *, has_calls: bool) -> str:
    """Why a choice ended, in OpenAI's words."""
    if request.finish_reason == "length":
        return "length"
    return "tool_calls" if has_calls else "stop"


def usage_of(requests: Sequence[Request]) -> dict[str, Any]:
    """What all choices cost; a prompt that several have is read once."""
    of_prompts = {id(one.prompt_token_ids): one for one in reversed(requests)}.values()
    prompt = sum(one.num_prompt_tokens for one in of_prompts)
    cached = sum(min(one.num_prompt_tokens, one.stats.num_cached_tokens) for one in of_prompts)
    completion = sum(request.num_output_tokens for request in requests)
    reasoning = sum(request.usage.reasoning_tokens for request in requests)
    stats = [request.stats for request in requests]
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {
            "reasoning_tokens": reasoning,
            "accepted_prediction_tokens": sum(one.accepted_prediction_tokens for one in stats),
            "rejected_prediction_tokens": sum(one.rejected_prediction_tokens for one in stats),
        },
    }


def choice_body(
    index: int, message: dict[str, Any], reason: str, logprobs: Any = None
) -> dict[str, Any]:
    """One choice of a whole answer."""
    return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": reason}


def logprobs_body(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """`logprobs` of a choice, or of a piece of one."""
    return {"content": entries, "refusal": None}


class Chunks:
    """Writes the pieces of one streamed answer; what stays the same is written once."""

    def __init__(self, head: Head, *, has_usage: bool) -> None:
        fields = head.fields("chat.completion.chunk")
        self._head = json.dumps(fields)[:-1]
        self._usage = ', "usage": null' if has_usage else ""
        # of each choice: what stands around a text
        self._around: dict[int, tuple[bytes, bytes]] = {}

    def text(self, index: int, text: str) -> bytes:
        """More of a choice's text, which is nearly all that is ever sent."""
        around = self._around.get(index)
        if around is None:
            before, after = self._delta(index, {"content": ""}, None).split(b'"content": ""')
            around = self._around[index] = before + b'"content": ', after
        return one_line(encode_basestring(text)).encode().join(around)

    def delta(self, index: int, delta: dict[str, Any], logprobs: Any = None) -> bytes:
        """More of a choice."""
        text = delta.get("content") if len(delta) == 1 and logprobs is None else None
        return self._delta(index, delta, logprobs) if text is None else self.text(index, text)

    def _delta(self, index: int, delta: dict[str, Any], logprobs: Any) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": None}
        return self._chunk(dump([choice]), self._usage)

    def details(self, index: int, details: dict[str, Any]) -> bytes:
        """Where a choice's new tokens came from."""
        choice = {"index": index, "delta": {}, "logprobs": None, "finish_reason": None}
        return self._chunk(dump([{**choice, "structspec": details}]), self._usage)

    def beside(self, fields: dict[str, Any]) -> bytes:
        """What stands beside all choices."""
        return self._chunk("[]", f", {dump(fields)[1:-1]}{self._usage}")

    def end(self, index: int, reason: str) -> bytes:
        """A choice is done."""
        choice = {"index": index, "delta": {}, "logprobs": None, "finish_reason": reason}
        return self._chunk(json.dumps([choice]), self._usage)

    def usage(self, usage: dict[str, Any]) -> bytes:
        """What it cost, behind all choices."""
        return self._chunk("[]", f', "usage": {json.dumps(usage)}')

    def _chunk(self, choices: str, usage: str) -> bytes:
        return f'data: {self._head}, "choices": {choices}{usage}}}\n\n'.encode()


def deltas(events: Iterator[Event]) -> Iterator[dict[str, Any]]:
    """Events as the deltas of a streamed choice; a call's id and name are told once."""
    for event in events:
        match event:
            case AnswerText():
                yield {"content": event.text}
            case CallBegins():
                yield {"tool_calls": [{"index": event.index, **begun_call(event)}]}
            case ArgumentsText():
                function = {"arguments": event.text}
                yield {"tool_calls": [{"index": event.index, "function": function}]}
