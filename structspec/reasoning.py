"""What a request may ask about the reasoning that a model writes before its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

from structspec.constraint import find_half_character
from structspec.errors import InvalidRequest

ReasoningMode = Literal["auto", "on", "off"]


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Whether a model reasons before its answer, between which markers, and for how long.

    `mode` "auto" leaves it to the prompt and the model, "on" has it reason, "off" not. `start` and
    `end` are the texts around reasoning, by default those that the tokenizer or the chat template
    names; an empty `start`: it reasons from its first token on. At most `max_tokens` are written
    before the end marker, which is forced then; None is what `answer_share` of the request's
    max_tokens, kept for the answer, leaves. `line_breaks`: behind the end marker one token of so
    many at most belongs to neither.
    """

    mode: ReasoningMode = "auto"
    start: str | None = None
    end: str | None = None
    max_tokens: int | None = None
    answer_share: float = 0.25
    line_breaks: int = 2

    def __post_init__(self) -> None:
        for name, holds, wanted in (
            ("mode", self.mode in get_args(ReasoningMode), '"auto", "on" or "off"'),
            ("start", self.start is None or _is_text(self.start), "a string"),
            ("end", self.end is None or (self.end and _is_text(self.end)), "a non-empty string"),
            ("max_tokens", self.max_tokens is None or _is_count(self.max_tokens), "an int >= 0"),
            ("answer_share", _is_share(self.answer_share), "in [0, 1]"),
            ("line_breaks", _is_count(self.line_breaks), "an int >= 0"),
        ):
            if not holds:
                raise InvalidRequest(
                    f"reasoning: {name} must be {wanted}, not {getattr(self, name)!r}"
                )
        if (self.start is None) != (self.end is None):
            raise InvalidRequest("reasoning: start and end go together; pass both or neither")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and find_half_character(value) is None


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_share(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= 1


def to_reasoning(wish: bool | Reasoning | Mapping[str, Any]) -> Reasoning:
    """Of True ("on"), False ("off") or the fields by name."""
    if isinstance(wish, Reasoning):
        return wish
    if isinstance(wish, bool):
        return Reasoning(mode="on" if wish else "off")
    known = [field.name for field in fields(Reasoning)]
    for name in wish:
        if name not in known:
            raise InvalidRequest(f"reasoning: unknown field {name!r}; known are {', '.join(known)}")
    return Reasoning(**wish)


def resolve_reasoning(
    wish: bool | Reasoning | Mapping[str, Any] | None, max_reasoning_tokens: int | None
) -> Reasoning | None:
    """What the options of a call come down to; None where neither was given."""
    if wish is None and max_reasoning_tokens is None:
        return None
    reasoning = Reasoning() if wish is None else to_reasoning(wish)
    if max_reasoning_tokens is None:
        return reasoning
    if max_reasoning_tokens < 0:
        raise InvalidRequest(f"max_reasoning_tokens must be at least 0, not {max_reasoning_tokens}")
    if reasoning.mode == "off":
        raise InvalidRequest("max_reasoning_tokens= contradicts reasoning=False")
    if reasoning.max_tokens not in (None, max_reasoning_tokens):
        raise InvalidRequest(
            f"max_reasoning_tokens={max_reasoning_tokens} contradicts reasoning's max_tokens="
            f"{reasoning.max_tokens}; pass one"
        )
    return replace(reasoning, max_tokens=max_reasoning_tokens)
