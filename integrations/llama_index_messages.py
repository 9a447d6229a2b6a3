"""LlamaIndex's chat messages in OpenAI's form, which the engine and servers read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from llama_index.core.base.llms.types import (
    CachePoint,
    ChatMessage,
    CitableBlock,
    CitationBlock,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)

from structspec.errors import InvalidRequest

_ROLES = {
    MessageRole.DEVELOPER: "system",
    MessageRole.FUNCTION: "tool",
    MessageRole.CHATBOT: "assistant",
    MessageRole.MODEL: "assistant",
}


def to_messages(messages: Sequence[ChatMessage], system_prompt: str | None) -> list[dict[str, Any]]:
    """The messages as dicts, copied; raises InvalidRequest for what is no text.

    The system prompt stands first, once, whoever has put it there: with other system messages at
    the start it is one message, since many chat templates have room for one alone.
    """
    if not messages:
        raise InvalidRequest("messages is empty: there must be at least one message")
    told = [_to_message(message, f"messages[{i}]") for i, message in enumerate(messages)]
    num_system = next((i for i, one in enumerate(told) if one["role"] != "system"), len(told))
    system = [one["content"] for one in told[:num_system]]
    if system_prompt and system_prompt not in system:
        system.insert(0, system_prompt)
    first = [{"role": "system", "content": "\n\n".join(system)}] if system else []
    return [*first, *told[num_system:]]


def _to_message(message: ChatMessage, place: str) -> dict[str, Any]:
    role = _ROLES.get(message.role, message.role.value)
    told = {"role": role, "content": "\n".join(_texts(message.blocks, place))}
    if role == "assistant":
        told |= _said(message, place)
    if role == "tool":
        told["tool_call_id"] = str(message.additional_kwargs.get("tool_call_id") or "")
    name = message.additional_kwargs.get("name")
    return {**told, "name": name} if isinstance(name, str) else told


def _texts(blocks: Sequence[Any], place: str) -> Iterator[str]:
    for index, block in enumerate(blocks):
        match block:
            case TextBlock():
                yield block.text
            case CitableBlock():
                yield from _texts(block.content, f"{place}.blocks[{index}]")
            case CitationBlock():
                yield from _texts([block.cited_content], f"{place}.blocks[{index}]")
            case ThinkingBlock() | ToolCallBlock() | CachePoint():
                continue
            case _:
                raise InvalidRequest(
                    f"{place}.blocks[{index}]: this model reads text, no {type(block).__name__};"
                    " put what it says into a TextBlock"
                )


def _said(message: ChatMessage, place: str) -> dict[str, Any]:
    """What an assistant has said beside its text: reasoning, and calls of tools."""
    said: dict[str, Any] = {}
    thought = [one.content for one in message.blocks if isinstance(one, ThinkingBlock)]
    if any(thought):
        said["reasoning_content"] = "\n".join(filter(None, thought))
    calls = [_to_call(one) for one in message.blocks if isinstance(one, ToolCallBlock)]
    if not calls:  # of integrations that know no blocks
        calls = [*other_calls(message.additional_kwargs.get("tool_calls") or (), place)]
    return {**said, "tool_calls": calls} if calls else said


def _to_call(block: ToolCallBlock) -> dict[str, Any]:
    kwargs = block.tool_kwargs
    arguments = kwargs if isinstance(kwargs, str) else json.dumps(kwargs, ensure_ascii=False)
    return call_body(block.tool_call_id or "", block.tool_name, arguments or "{}")


def other_calls(calls: Sequence[Any], place: str) -> Iterator[dict[str, Any]]:
    """Calls of integrations that know no blocks, in OpenAI's form."""
    for index, call in enumerate(calls):
        given = call.model_dump() if hasattr(call, "model_dump") else call
        try:
            function = given["function"]
            name, arguments = function["name"], function.get("arguments") or "{}"
            yield call_body(given.get("id") or "", name, arguments)
        except (TypeError, KeyError, AttributeError):
            where = f"{place}.additional_kwargs['tool_calls'][{index}]"
            raise InvalidRequest(
                f"{where} must be a call in OpenAI's form, not {call!r}; or fill in a ToolCallBlock"
            ) from None


def call_body(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """A call of a tool in OpenAI's form."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
