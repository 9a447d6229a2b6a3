"""Telling the model what its output has to look like: the schema, in one sentence.

The constraint guarantees the form whatever the prompt says; the sentence is there so that the
model *means* what it is made to write.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from structspec.errors import OutputInvalid
from structspec.prompt_schema import compact, schema_text
from structspec.schema import SchemaTarget

SchemaInPrompt = Literal["auto", "always", "never"]
Message = Mapping[str, Any]


def show_schema(
    messages: Sequence[Message],
    target: SchemaTarget | None,
    mode: SchemaInPrompt = "auto",
) -> list[dict[str, Any]]:
    """Copies of the messages, with the schema explained at the start of the last user message.

    "auto" leaves them as they are where the prompt already says it: it holds the schema's JSON, or
    the word JSON and every top-level property name. Without a user message a system message is put
    first. What the user says stays last, where small models heed it most, and prompts with one
    schema begin alike. The same arguments always give the same text.
    """
    shown = [dict(message) for message in messages]
    if mode == "never" or target is None or target.json_schema == {}:
        return shown
    if mode == "auto" and _is_shown(shown, target.json_schema):
        return shown
    text = describe_schema(target.json_schema)
    for message in reversed(shown):
        if message.get("role") == "user":
            message["content"] = _prepend(text, message.get("content"))
            return shown
    return [{"role": "system", "content": text}, *shown]


def describe_schema(json_schema: Mapping[str, Any]) -> str:
    """The instruction for one schema; docs/benchmarks.md has what others would be worth."""
    return f"Answer in JSON that conforms to this JSON schema: {schema_text(json_schema)}"


def feedback_on(error: OutputInvalid) -> list[Message]:
    """What an output that did not validate is followed by: itself, and what is wrong with it."""
    wrong = "\n".join(error.errors) or str(error)
    told = f"That is not valid:\n{wrong}\nWrite all of it again, with this corrected."
    return [{"role": "assistant", "content": error.text}, {"role": "user", "content": told}]


def _is_shown(messages: Sequence[Message], json_schema: Mapping[str, Any]) -> bool:
    prompt = "\n".join(_text_of(message.get("content")) for message in messages)
    if _without_blanks(compact(json_schema)) in _without_blanks(prompt):
        return True
    names = json_schema.get("properties", {})
    is_named = (re.search(rf"(?<!\w){re.escape(name)}(?!\w)", prompt) for name in names)
    return bool(names) and "json" in prompt.lower() and all(is_named)


def _prepend(text: str, content: Any) -> Any:
    """`content` with one more paragraph before it; it may be a string or a list of parts."""
    if isinstance(content, list):
        return [{"type": "text", "text": text}, *content]
    return f"{text}\n{content}" if content else text


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return ""


def _without_blanks(text: str) -> str:
    return "".join(text.split())
