"""What may be passed as a prompt, and as several of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from structspec.errors import InvalidRequest

Messages = Sequence[Mapping[str, Any]]
Prompt = str | Messages
Prompts = Prompt | Sequence[Prompt]


def to_messages(prompt: Prompt) -> list[dict[str, Any]]:
    """A prompt as chat messages: a string is what the user says."""
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    if isinstance(prompt, bytes) or not isinstance(prompt, Sequence):
        raise InvalidRequest(f"a prompt is a string or a list of messages, not {prompt!r}")
    if not prompt:
        raise InvalidRequest("a prompt needs at least one message, and this list is empty")
    messages = []
    for index, message in enumerate(prompt):
        if not isinstance(message, Mapping):
            raise InvalidRequest(
                f"messages[{index}] must be a dict with a 'role' and a 'content', not {message!r}"
            )
        if not isinstance(message.get("role"), str) or "content" not in message:
            raise InvalidRequest(
                f"messages[{index}] must have a 'role' and a 'content', not {message!r}"
            )
        if not isinstance(message["content"], str | list | None):
            raise InvalidRequest(
                f"messages[{index}]: 'content' must be text, not {message['content']!r}"
            )
        messages.append(dict(message))
    return messages


def split_prompts(prompts: Prompts) -> tuple[list[Prompt], bool]:
    """The prompts one by one, and whether there was a list of them rather than one."""
    if isinstance(prompts, str):
        return [prompts], False
    if isinstance(prompts, bytes) or not isinstance(prompts, Sequence):
        raise InvalidRequest(
            "a prompt is a string or a list of messages, and several are a list of those,"
            f" not {type(prompts).__name__}"
        )
    kinds = [isinstance(prompt, Mapping) for prompt in prompts]
    if any(kinds) and not all(kinds):
        raise InvalidRequest("a list holds either messages (dicts) or prompts, not both")
    if any(kinds):
        return [cast(Messages, prompts)], False
    return list(cast(Sequence[Prompt], prompts)), True
