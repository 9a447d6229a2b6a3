"""What a ChatStructSpec is set to: options of `generate` that hold for all of its calls."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field

from structspec.chat.standing_options import heeded
from structspec.constraint import JsonStyle, PropertyOrder
from structspec.errors import InvalidRequest
from structspec.prompting import SchemaInPrompt
from structspec.reasoning import Reasoning
from structspec.request import LogprobsMode
from structspec.settings import BackendName, OnUnsupported
from structspec.speculation import Speculation


class CallOptions(BaseModel):
    """Fields of every call; None is the model's own choice, or structspec's."""

    temperature: float | None = None
    max_tokens: int | None = None
    stop: str | list[str] | None = Field(default=None, alias="stop_sequences")
    seed: int | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[int | str, float] | None = None
    logprobs: int | None = None
    logprobs_mode: LogprobsMode | None = None
    min_tokens: int | None = None
    stop_token_ids: list[int] | None = None
    bad_words: str | list[str] | None = None
    allowed_token_ids: list[int] | None = None
    reasoning: bool | Reasoning | dict[str, Any] | None = None
    max_reasoning_tokens: int | None = None
    speculative: bool | Speculation | dict[str, Any] | None = None
    backend: BackendName | None = None
    on_unsupported: OnUnsupported | None = None
    max_attempts: int | None = None
    retry_feedback: bool | None = None
    style: JsonStyle | None = None
    property_order: PropertyOrder | None = None
    closed: bool | None = None
    schema_in_prompt: SchemaInPrompt | None = None

    def options(
        self,
        given: Mapping[str, Any],
        stop: str | Sequence[str] | None,
        *,
        has_tools: bool = False,
        is_all: bool = False,
    ) -> dict[str, Any]:
        """Those of one call: `given` ones, and of this object those that mean something to it.

        With `is_all` all of them, whatever they mean.
        """
        own = {name: getattr(self, name) for name in CallOptions.model_fields}
        if stop:
            own["stop"] = [*_as_list(own["stop"]), *_as_list(stop)]
        if is_all:
            return {name: value for name, value in {**own, **given}.items() if value is not None}
        return heeded(own, given, has_tools=has_tools)


def _as_list(stop: str | Sequence[str] | None) -> list[str]:
    return [stop] if isinstance(stop, str) else [*(stop or ())]


def refuse_unknown(given: Iterable[str], known: Iterable[str]) -> None:
    """Raise InvalidRequest for a field there is not: pydantic would drop it without a word."""
    names = sorted(known)
    for name in given:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {close[0]}=?" if close else f"known are {', '.join(names)}"
            raise InvalidRequest(f"ChatStructSpec has no field {name!r}; {hint}")


def read_choice(
    choice: str | bool | Mapping[str, Any] | None, tools: Sequence[Mapping[str, Any]]
) -> Any:
    """A `tool_choice` as OpenAI has them; None where nothing was said, or there are no tools."""
    if not tools or choice is None:
        return None
    if isinstance(choice, bool):
        return "required" if choice else "none"
    if not isinstance(choice, str) or choice in ("auto", "none", "required"):
        return choice
    names = [tool.get("function", {}).get("name") for tool in tools]
    if choice in names:  # a tool may be called "any"
        return {"type": "function", "function": {"name": choice}}
    if choice == "any":
        return "required"
    raise InvalidRequest(
        f"tool_choice: there is no tool {choice!r}, there are {', '.join(map(str, names))};"
        " or say auto, none or any"
    )
