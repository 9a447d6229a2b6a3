"""An LLM over a server that is none: it says what a test puts in, and keeps what it was asked."""

from __future__ import annotations

import json
from typing import Any

from structspec.integrations.llama_index import StructSpec
from tests.client.fakes import Blocking, Fake, Lines


class Scripted:
    """`llm` asks, `bodies` are the requests; each of `says` is a text or a message, in turn."""

    def __init__(self, *says: Any, **fields: Any) -> None:
        self._fake = Fake("structspec", *says)
        self.engine = Blocking(self._fake).client
        self.llm = StructSpec(engine=self.engine, **fields)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return self._fake.bodies

    @property
    def asked(self) -> list[tuple[str, str]]:
        """Role and text of each message of the only request."""
        (body,) = self.bodies
        return [(one["role"], one["content"]) for one in body["messages"]]


def call(tool: str, /, **arguments: Any) -> dict[str, Any]:
    """A message that calls a tool."""
    function = {"name": tool, "arguments": json.dumps(arguments)}
    return {"content": None, "tool_calls": [{"function": function}], "finish_reason": "tool_calls"}


def streamed(*deltas: dict[str, Any], reason: str = "stop") -> Lines:
    """The same in pieces."""
    chunks: list[dict[str, Any]] = [
        {"choices": [{"delta": delta, "finish_reason": None}]} for delta in deltas
    ]
    chunks.append({"choices": [{"delta": {}, "finish_reason": reason}]})
    chunks.append({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}})
    return Lines("".join(f"data: {json.dumps(one)}\n\n" for one in chunks) + "data: [DONE]\n\n")


def streamed_call(name: str, *pieces: str) -> Lines:
    """A call in pieces."""
    first = {"tool_calls": [{"index": 0, "function": {"name": name, "arguments": ""}}]}
    rest = [{"tool_calls": [{"index": 0, "function": {"arguments": one}}]} for one in pieces]
    return streamed(first, *rest, reason="tool_calls")
