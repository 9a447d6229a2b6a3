"""Tools in prompts: by the model's own template, or told in words where that has no place for them.

What a model was trained on says how it writes calls (`choose_envelope`). A model without tools of
its own is told of them in a system message, and shown its calls and their results as plain text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from structspec.constraint import Envelope
from structspec.grammars.envelopes import ENVELOPES
from structspec.prompt_schema import compact

Message = Mapping[str, Any]

# by what their templates say, the most telling first
_SIGNS: tuple[tuple[str, Envelope], ...] = (
    ("<|channel|>", "harmony"),
    ("<｜tool▁calls▁begin｜>", "deepseek"),
    ("[TOOL_CALLS]", "mistral"),
    ("<tool_call>", "hermes"),
    ('"parameters": ', "llama3"),
)


def choose_envelope(template: str | None) -> Envelope:
    """How a model with this chat template writes calls; plain JSON where it says nothing."""
    if not has_tools(template):
        return "json"
    return next((name for sign, name in _SIGNS if sign in (template or "")), "json")


def has_tools(template: str | None) -> bool:
    """Whether a chat template has a place for tools."""
    return template is not None and "tools" in template


def place_tools(
    messages: list[dict[str, Any]], tools: Sequence[Mapping[str, Any]], template: str | None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]] | None]:
    """What a chat template is given: messages, and tools where it has a place for them.

    Where it has none they are told in the messages.
    """
    if not has_tools(template):
        return tell_tools(messages, tools, choose_envelope(template)), None
    wrapped = [
        dict(tool) if "function" in tool else {"type": "function", "function": dict(tool)}
        for tool in tools
    ]
    return messages, wrapped or None


def tell_tools(
    messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], envelope: Envelope
) -> list[dict[str, Any]]:
    """The messages for a template without tools: what there is to call, and calls as text.

    The same arguments always give the same text.
    """
    told = [_as_text(message, envelope) for message in messages]
    if not tools:
        return told
    text = _describe(tools, envelope)
    if told and told[0]["role"] == "system":
        first = {**told[0], "content": f"{told[0]['content']}\n\n{text}"}
        return [first, *told[1:]]
    return [{"role": "system", "content": text}, *told]


def _describe(tools: Sequence[Mapping[str, Any]], envelope: Envelope) -> str:
    functions = [tool.get("function", tool) for tool in tools]
    lines = [
        compact({key: tool[key] for key in ("name", "description", "parameters") if tool.get(key)})
        for tool in functions
    ]
    # with a real name: small models copy what they see
    names = map(partial(json.dumps, ensure_ascii=False), _names_of(functions[0].get("parameters")))
    arguments = ", ".join(f"{name}: …" for name in names)
    form = _write(functions[0]["name"], f"{{{arguments}}}", envelope)
    return "\n".join(["You can call these tools:", *lines, f"A call is written like {form}"])


def _names_of(parameters: object) -> Iterable[str]:
    """Of a tool's arguments; whoever compiles the schema says what is wrong with it."""
    properties = parameters.get("properties") if isinstance(parameters, Mapping) else None
    return properties if isinstance(properties, Mapping) else ()


def _as_text(message: Message, envelope: Envelope) -> dict[str, Any]:
    """A message without calls: made or answered, they are told in its text."""
    content = message.get("content") or ""
    if message.get("role") == "tool":
        return {"role": "user", "content": f"The tool returned: {content}"}
    calls = "\n".join(_calls(message, envelope))
    if not calls:
        return {**message, "content": content}
    text = f"{content}\n{calls}" if content else calls
    return {"role": message["role"], "content": text}


def _calls(message: Message, envelope: Envelope) -> Iterator[str]:
    for call in message.get("tool_calls") or ():
        function = call.get("function", call)
        arguments = function.get("arguments") or "{}"
        # spaced, as the grammar has the model write them: the KV cache then holds these very tokens
        text = (
            arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        )
        yield _write(function["name"], text, envelope)


def _write(name: str, arguments: str, envelope: Envelope) -> str:
    fixed = ENVELOPES[envelope]
    written = json.dumps(name, ensure_ascii=False)[1:-1] if fixed.is_json_name else name
    inner = written + fixed.before_arguments + arguments + fixed.after_arguments
    return fixed.opening + fixed.before_name + inner + fixed.closing
