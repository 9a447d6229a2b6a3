"""Messages of LangChain as the engine reads them, and what it says as messages of LangChain."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.ai import InputTokenDetails, OutputTokenDetails, UsageMetadata

from structspec.call_reader import AnswerText, ArgumentsText, CallBegins
from structspec.chat.call_ids import new_call_id
from structspec.chat.events import MessageEvent, ReasoningText
from structspec.chat.turns import Said
from structspec.errors import GenerationError, InvalidRequest, Truncated
from structspec.generation import Generation
from structspec.request import NO_USAGE, Usage

PROVIDER = "structspec"
# blocks of a content that say again what a message has beside it, or what no template takes
_BESIDE = {"tool_use", "tool_call", "tool_call_chunk", "input_json_delta", "non_standard"}
_REASONING = {"reasoning": "reasoning", "thinking": "thinking", "redacted_thinking": ""}


def to_openai(messages: Sequence[BaseMessage]) -> list[dict[str, Any]]:
    """Messages in the form of OpenAI's API; raises InvalidRequest for kinds that it has not."""
    return [told for message in messages for told in _to_openai(message)]


def _to_openai(message: BaseMessage) -> Iterator[dict[str, Any]]:
    content = _content(message.content)
    match message:
        case AIMessage():
            yield _assistant(message, content)
        case ToolMessage():
            yield {"role": "tool", "tool_call_id": message.tool_call_id, **_named(message, content)}
        case HumanMessage():
            yield from _results(message)  # where other makers put them
            if content or not message.content:
                yield {"role": "user", **_named(message, content)}
        case SystemMessage():
            yield {"role": "system", **_named(message, content)}
        case FunctionMessage():
            yield {"role": "function", **_named(message, content)}
        case ChatMessage():
            yield {"role": message.role, **_named(message, content)}
        case _:
            raise InvalidRequest(f"a {type(message).__name__} is no message of a chat: {message!r}")


def _named(message: BaseMessage, content: Any) -> dict[str, Any]:
    return {"content": content, **({"name": message.name} if message.name else {})}


def _content(content: str | Sequence[Any]) -> str | list[Any]:
    """Without what a message has beside its content."""
    if isinstance(content, str):
        return content
    return [part for part in content if not _is_beside(part)]


def _is_beside(part: Any) -> bool:
    kind = part.get("type") if isinstance(part, Mapping) else None
    return kind in _BESIDE or kind in _REASONING or kind == "tool_result"


def _results(message: HumanMessage) -> Iterator[dict[str, Any]]:
    for part in message.content if isinstance(message.content, list) else ():
        if isinstance(part, Mapping) and part.get("type") == "tool_result":
            told = {"tool_call_id": part.get("tool_use_id"), "content": part.get("content") or ""}
            yield {"role": "tool", **told}


def _assistant(message: AIMessage, content: Any) -> dict[str, Any]:
    told = {"role": "assistant", **_named(message, content)}
    calls = [
        _call(call["id"], call["name"], json.dumps(call["args"], ensure_ascii=False))
        for call in message.tool_calls
    ]
    calls += [
        _call(call["id"], call["name"] or "", call["args"] or "")
        for call in message.invalid_tool_calls
    ]
    if calls:
        told["tool_calls"] = calls
    if reasoning := _reasoning_of(message):
        told["reasoning_content"] = reasoning
    return told


def _call(call_id: str | None, name: str, arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": call_id or "", "type": "function", "function": function}


def _reasoning_of(message: AIMessage) -> str:
    if told := message.additional_kwargs.get("reasoning_content"):
        return str(told)
    parts = message.content if isinstance(message.content, list) else ()
    return "".join(
        str(part.get(_REASONING[part["type"]]) or "")
        for part in parts
        if isinstance(part, Mapping) and part.get("type") in _REASONING
    )


def to_message(said: Said, model_name: str) -> AIMessage:
    """A finished turn."""
    generation = said.generation
    return AIMessage(
        content=said.text,
        additional_kwargs=_reasoning(generation.reasoning),
        tool_calls=[
            {"name": call.name, "args": call.arguments, "id": new_call_id(), "type": "tool_call"}
            for call in said.calls
        ],
        usage_metadata=_usage(generation.usage, generation),
        response_metadata=_metadata(said, model_name),
    )


def to_failed_message(error: Exception, model_name: str) -> AIMessage:
    """What a turn has written that came to nothing; `response_metadata` has the error."""
    text, usage = "", NO_USAGE
    if isinstance(error, GenerationError):
        text, usage = error.text, error.usage or NO_USAGE
    metadata = {
        **_head(model_name, "length" if isinstance(error, Truncated) else "stop"),
        "error": {"type": type(error).__name__, "message": str(error)},
    }
    return AIMessage(content=text, usage_metadata=_usage(usage), response_metadata=metadata)


def _head(model_name: str, finish_reason: str) -> dict[str, Any]:
    return {
        "model_name": model_name,
        "model_provider": PROVIDER,
        "finish_reason": finish_reason,
    }


def _metadata(said: Said, model_name: str) -> dict[str, Any]:
    reason = "tool_calls" if said.calls else said.generation.finish_reason
    metadata = _head(model_name, reason)
    if said.logprobs is not None:
        metadata["logprobs"] = {"content": said.logprobs}
    return metadata


def _reasoning(text: str | None) -> dict[str, Any]:
    return {} if text is None else {"reasoning_content": text}


def _usage(usage: Usage, generation: Generation | None = None) -> UsageMetadata:
    num_cached = 0 if generation is None else generation.stats.num_cached_tokens
    return UsageMetadata(
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        total_tokens=usage.total_tokens,
        input_token_details=InputTokenDetails(cache_read=min(num_cached, usage.prompt_tokens)),
        output_token_details=OutputTokenDetails(reasoning=usage.reasoning_tokens),
    )


def to_chunk(event: MessageEvent | Said, model_name: str) -> AIMessageChunk:
    """What a turn that is being written adds to its message."""
    match event:
        case AnswerText():
            return AIMessageChunk(content=event.text)
        case ReasoningText():
            return AIMessageChunk(content="", additional_kwargs=_reasoning(event.text))
        case CallBegins():
            return _call_chunk(event.index, "", event.name, new_call_id())
        case ArgumentsText():
            return _call_chunk(event.index, event.text)
    return AIMessageChunk(
        content="",
        usage_metadata=_usage(event.generation.usage, event.generation),
        response_metadata=_metadata(event, model_name),
        chunk_position="last",
    )


def _call_chunk(
    index: int, arguments: str, name: str | None = None, call_id: str | None = None
) -> AIMessageChunk:
    chunk = {"name": name, "args": arguments, "id": call_id, "index": index}
    return AIMessageChunk(content="", tool_call_chunks=[{**chunk, "type": "tool_call_chunk"}])


def to_failed_chunk(error: Exception, model_name: str) -> AIMessageChunk:
    """The end of a stream that came to nothing; its text was told before."""
    failed = to_failed_message(error, model_name)
    return AIMessageChunk(
        content="",
        usage_metadata=failed.usage_metadata,
        response_metadata=failed.response_metadata,
        chunk_position="last",
    )
