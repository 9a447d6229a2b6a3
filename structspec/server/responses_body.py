"""The bodies and events of /v1/responses, in the order that SDKs insist on."""

from __future__ import annotations

import copy
import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Any

from structspec.call_reader import AnswerText, ArgumentsText, CallBegins, Event
from structspec.request import Request
from structspec.server.bodies import ResponsesBody
from structspec.server.chat_body import usage_of
from structspec.server.sse import event

_ECHOED: dict[
    str, Any
] = {  # what a response says of its request, and what it says where that said nothing
    "instructions": None,
    "metadata": {},
    "temperature": None,
    "top_p": None,
    "tools": [],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "max_output_tokens": None,
    "previous_response_id": None,
    "reasoning": {"effort": None, "summary": None},
    "text": {"format": {"type": "text"}},
    "top_logprobs": 0,
}

_MESSAGE, _REASONING = "message", "reasoning"
_PREFIXES = {_MESSAGE: "msg", _REASONING: "rs"}
_FIELDS: dict[str, dict[str, Any]] = {  # of items without content yet
    _MESSAGE: {"role": "assistant", "content": []},
    _REASONING: {"summary": [], "content": []},
}
_PARTS: dict[str, dict[str, Any]] = {
    _MESSAGE: {"type": "output_text", "text": "", "annotations": [], "logprobs": []},
    _REASONING: {"type": "reasoning_text", "text": ""},
}


def new_id(kind: str) -> str:
    """A fresh id, its kind in front."""
    return f"{kind}_{secrets.token_hex(16)}"


class ResponseBody:
    """One response as it comes about: its items, and the events that tell of them."""

    def __init__(self, model: str, request: ResponsesBody) -> None:
        self.items: list[dict[str, Any]] = []
        self._sequence = 0
        self._is_open = False  # whether the last item is still being written
        self._fields: dict[str, Any] = {
            "id": new_id("resp"),
            "object": "response",
            "created_at": int(time.time()),
            "model": model,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "service_tier": "default",
            "truncation": "disabled",
            "store": request.store is not False,
        }
        for name, default in _ECHOED.items():
            given = getattr(request, name)
            self._fields[name] = default if given is None else given

    def body(self, status: str, request: Request | None = None, **more: Any) -> dict[str, Any]:
        """The response as it stands; with `request`, what it cost."""
        usage = None if request is None else to_usage(request)
        return {**self._fields, "status": status, "output": self.items, "usage": usage, **more}

    def ended(self, request: Request) -> dict[str, Any]:
        """The whole response of a finished request."""
        if request.finish_reason == "length":
            details = {"reason": "max_output_tokens"}
            return self.body("incomplete", request, incomplete_details=details)
        return self.body("completed", request)

    def begin(self) -> Iterator[bytes]:
        """What comes before everything else."""
        for kind in ("created", "in_progress"):
            yield self._event(f"response.{kind}", response=self.body("in_progress"))

    def add(self, found: Iterator[Event]) -> Iterator[bytes]:
        """Take in what a reader says, and tell it."""
        for one in found:
            match one:
                case AnswerText():
                    yield from self._add_text(_MESSAGE, one.text)
                case CallBegins():
                    yield from self._begin_call(one)
                case ArgumentsText():
                    yield from self._add_arguments(one.text)

    def reason(self, text: str) -> Iterator[bytes]:
        """Take in more of what is written before the answer."""
        yield from self._add_text(_REASONING, text)

    def close(
        self, status: str = "completed", logprobs: Sequence[dict[str, Any]] = ()
    ) -> Iterator[bytes]:
        """End the item that is being written; `logprobs` are those of its text."""
        if not self._is_open:
            return
        self._is_open = False
        item, where = self.items[-1], self._where()
        item["status"] = status
        if item["type"] == "function_call":
            told = {"name": item["name"], "arguments": item["arguments"]}
            yield self._event("response.function_call_arguments.done", **where, **told)
        else:
            (part,) = item["content"]
            place = {**where, "content_index": 0, "text": part["text"]}
            if item["type"] == "message":
                place["logprobs"] = part["logprobs"] = [*logprobs]
            yield self._event(f"response.{part['type']}.done", **place)
            place = {**where, "content_index": 0}
            yield self._event("response.content_part.done", **place, part=part)
        yield self._event("response.output_item.done", output_index=len(self.items) - 1, item=item)

    def end(self, request: Request) -> bytes:
        """The last event of a finished request."""
        body = self.ended(request)
        return self._event(f"response.{body['status']}", response=body)

    def fail(self, code: str | None, message: str) -> Iterator[bytes]:
        """The last events of one that failed."""
        error = {"code": code, "message": message}
        yield self._event("error", **error, param=None)
        yield self._event("response.failed", response=self.body("failed", error=error))

    def _add_text(self, kind: str, text: str) -> Iterator[bytes]:
        if not self._is_open or self.items[-1]["type"] != kind:
            yield from self.close()
            yield from self._begin_item(new_id(_PREFIXES[kind]), kind, copy.deepcopy(_FIELDS[kind]))
            part = copy.deepcopy(_PARTS[kind])
            self.items[-1]["content"].append(part)
            place = {**self._where(), "content_index": 0}
            yield self._event("response.content_part.added", **place, part=part)
        part = self.items[-1]["content"][0]
        part["text"] += text
        place = {**self._where(), "content_index": 0, "delta": text}
        if kind == _MESSAGE:
            place["logprobs"] = []
        yield self._event(f"response.{part['type']}.delta", **place)

    def _begin_call(self, call: CallBegins) -> Iterator[bytes]:
        yield from self.close()
        fields = {"call_id": new_id("call"), "name": call.name, "arguments": ""}
        yield from self._begin_item(new_id("fc"), "function_call", fields)

    def _add_arguments(self, text: str) -> Iterator[bytes]:
        self.items[-1]["arguments"] += text
        yield self._event("response.function_call_arguments.delta", **self._where(), delta=text)

    def _begin_item(self, item_id: str, kind: str, fields: dict[str, Any]) -> Iterator[bytes]:
        item = {"id": item_id, "type": kind, "status": "in_progress", **fields}
        self.items.append(item)
        self._is_open = True
        yield self._event("response.output_item.added", output_index=len(self.items) - 1, item=item)

    def _where(self) -> dict[str, Any]:
        return {"item_id": self.items[-1]["id"], "output_index": len(self.items) - 1}

    def _event(self, kind: str, **data: Any) -> bytes:
        number, self._sequence = self._sequence, self._sequence + 1
        return event(kind, {"type": kind, "sequence_number": number, **data})


def to_usage(request: Request) -> dict[str, Any]:
    """What a response cost, in the words of this endpoint."""
    usage = usage_of([request])
    reasoning = usage["completion_tokens_details"]["reasoning_tokens"]
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {**usage["prompt_tokens_details"], "cache_write_tokens": 0},
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": usage["total_tokens"],
    }
