"""Chat messages as templates take them, from all the forms that clients send."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from structspec.chat.fields import refuse

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_TEXT_PARTS = ("text", "input_text", "output_text", "refusal", "reasoning_text", "summary_text")


def read_messages(given: Sequence[Mapping[str, Any]], param: str) -> list[dict[str, Any]]:
    """Messages with a role that templates know and text as content; raises InvalidField."""
    if not given:
        raise refuse(f"{param} must hold at least one message", param, "empty_array")
    return [read_message(message, f"{param}[{index}]") for index, message in enumerate(given)]


def read_message(given: Mapping[str, Any], param: str) -> dict[str, Any]:
    """One of them; `param` is its place in the request."""
    role = given.get("role")
    if role not in _ROLES:
        raise refuse(f"{param}.role must be one of {', '.join(_ROLES)}, not {role!r}", param)
    message: dict[str, Any] = {
        "role": {"developer": "system", "function": "tool"}.get(role, role),
        "content": text_of(given.get("content"), f"{param}.content"),
    }
    reasoning = given.get("reasoning_content") or given.get("reasoning")
    if role == "assistant" and isinstance(reasoning, str):
        message["reasoning_content"] = reasoning
    calls = given.get("tool_calls")
    if calls and not isinstance(calls, list):
        raise refuse(f"{param}.tool_calls must be a list, not {calls!r}", f"{param}.tool_calls")
    if role == "assistant" and calls:
        message["tool_calls"] = [
            _call(call, f"{param}.tool_calls[{index}]") for index, call in enumerate(calls)
        ]
    if role in ("tool", "function"):
        message["tool_call_id"] = given.get("tool_call_id") or ""
    if isinstance(given.get("name"), str):
        message["name"] = given["name"]
    return message


def text_of(content: Any, param: str) -> str:
    """The text of a message, or of its parts one behind the other."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise refuse(f"{param} must be text or a list of parts, not {content!r}", param)
    texts = []
    for index, part in enumerate(content):
        place = f"{param}[{index}]"
        kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
        if isinstance(part, str):
            texts.append(part)
        elif kind in ("tool_use", "thinking"):  # of other makers' histories; calls stand beside it
            continue
        elif kind in _TEXT_PARTS:
            texts.append(str(part.get("text") or part.get("refusal") or ""))
        else:
            raise refuse(
                f"{place}: this model reads text, no parts of type {kind!r}",
                f"{place}.type",
                "unsupported_content",
            )
    return "\n".join(texts)


def _call(given: Any, param: str) -> dict[str, Any]:
    """A call that was made, its arguments as templates want them: as an object."""
    function = given.get("function") if isinstance(given, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise refuse(f"{param} must have a function with a name", f"{param}.function")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        # an answer cut short, or too deep to read, sent back: shown as it is
        with contextlib.suppress(ValueError, RecursionError):
            arguments = json.loads(arguments or "{}")
    return {
        "id": given.get("id") or "",
        "type": "function",
        "function": {"name": function["name"], "arguments": arguments or {}},
    }
