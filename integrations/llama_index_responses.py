"""What a model has said as LlamaIndex's responses, whole and as it grows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    LogProb,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)

from structspec.call_reader import AnswerText, ArgumentsText, CallBegins
from structspec.chat.call_ids import new_call_id
from structspec.chat.events import MessageEvent, ReasoningText
from structspec.chat.turns import Said
from structspec.generation import Generation
from structspec.integrations.llama_index_messages import call_body


@dataclasses.dataclass(slots=True)
class _Call:
    """A call that is being written, or has been: then its arguments are parsed too."""

    name: str
    text: str = ""
    arguments: dict[str, Any] | None = None
    call_id: str = dataclasses.field(default_factory=new_call_id)

    def block(self) -> ToolCallBlock:
        """As blocks have it: arguments that are not finished are a text."""
        arguments = self.text if self.arguments is None else self.arguments
        return ToolCallBlock(tool_call_id=self.call_id, tool_name=self.name, tool_kwargs=arguments)


class Growing:
    """One response as it grows: every one that is given holds all that was said so far."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._text = ""
        self._reasoning = ""
        self._calls: list[_Call] = []

    def feed(self, event: MessageEvent) -> ChatResponse:
        """The response with one thing more."""
        delta, more = "", {}
        match event:
            case AnswerText():
                delta = event.text
                self._text += delta
            case ReasoningText():
                self._reasoning += event.text
                more = {"thinking_delta": event.text}
            case CallBegins():
                self._calls.append(_Call(event.name))
            case ArgumentsText():
                self._calls[event.index].text += event.text
        return ChatResponse(message=self._message(), delta=delta, additional_kwargs=more)

    def end(self, said: Said) -> ChatResponse:
        """The whole response, with what it has cost."""
        delta = said.text.removeprefix(self._text) if said.text.startswith(self._text) else ""
        self._text = said.text
        self._reasoning = said.generation.reasoning or ""
        begun = [*self._calls, *(_Call(call.name) for call in said.calls[len(self._calls) :])]
        self._calls = [
            _Call(call.name, call.text, call.arguments, one.call_id)
            for call, one in zip(said.calls, begun, strict=False)
        ]
        raw = _raw(self._model, said)
        return ChatResponse(
            message=self._message(),
            delta=delta,
            raw=raw,
            logprobs=_logprobs(said),
            additional_kwargs=_counts(raw["usage"]),
        )

    def _message(self) -> ChatMessage:
        blocks: list[Any] = [ThinkingBlock(content=self._reasoning)] if self._reasoning else []
        if self._text or not self._calls:
            blocks.append(TextBlock(text=self._text))
        blocks += [call.block() for call in self._calls]
        # LlamaIndex's own streams look for calls here, and nowhere else
        calls = [call_body(call.call_id, call.name, call.text) for call in self._calls]
        more = {"tool_calls": calls} if calls else {}
        return ChatMessage(role=MessageRole.ASSISTANT, blocks=blocks, additional_kwargs=more)


def to_response(said: Said, model: str) -> ChatResponse:
    """The response that a finished turn is."""
    response = Growing(model).end(said)
    response.delta = None
    return response


def to_completion(response: ChatResponse) -> CompletionResponse:
    """The same as a completion."""
    return CompletionResponse(
        text=response.message.content or "",
        delta=response.delta,
        raw=response.raw,
        logprobs=response.logprobs,
        additional_kwargs=response.additional_kwargs,
    )


def _raw(model: str, said: Said) -> dict[str, Any]:
    """What there is to know of it beside the message; `value` where a constraint was asked for."""
    generation = said.generation
    reason = "tool_calls" if said.calls else "stop"
    return {
        "model": model,
        "finish_reason": "length" if generation.finish_reason == "length" else reason,
        "usage": _usage(generation),
        "stats": dataclasses.asdict(generation.stats),
        "num_attempts": generation.num_attempts,
        "value": said.value,
    }


def _usage(generation: Generation) -> dict[str, Any]:
    usage, stats = generation.usage, generation.stats
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": stats.num_cached_tokens},
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens,
            "accepted_prediction_tokens": stats.accepted_prediction_tokens,
            "rejected_prediction_tokens": stats.rejected_prediction_tokens,
        },
    }


def _counts(usage: dict[str, Any]) -> dict[str, int]:
    names = ("prompt_tokens", "completion_tokens", "total_tokens")
    return {name: usage[name] for name in names}


def _logprobs(said: Said) -> list[list[LogProb]] | None:
    """For each token itself, and behind it the others that were likeliest."""
    if said.logprobs is None:
        return None
    return [[*_of_token(entry)] for entry in said.logprobs]


def _of_token(entry: dict[str, Any]) -> Iterator[LogProb]:
    yield _log_prob(entry)
    for one in entry["top_logprobs"]:
        if (one["token"], one["bytes"]) != (entry["token"], entry["bytes"]):
            yield _log_prob(one)


def _log_prob(told: dict[str, Any]) -> LogProb:
    data = told["bytes"] or []  # some servers tell none, and this must be a list
    return LogProb(token=told["token"], logprob=told["logprob"], bytes=data)
