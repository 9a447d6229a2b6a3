"""What is told of a message while it is written."""

from __future__ import annotations

from dataclasses import dataclass

from structspec.call_reader import AnswerText, ArgumentsText, CallBegins


@dataclass(frozen=True, slots=True)
class ReasoningText:
    """More of what the model thinks before it answers."""

    text: str


MessageEvent = ReasoningText | AnswerText | CallBegins | ArgumentsText
