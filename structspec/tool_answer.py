"""The answer of a model with tools: read as its type once it has been written instead of calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from structspec.options import Task


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """An answer's text, and the validated value that it is."""

    text: str
    value: Any


def read_answer(said: Any, task: Task) -> Any:
    """Calls as they are; an answer that is to be of a type as a ToolAnswer, else as its text.

    Raises OutputInvalid, as the task's `answer` does.
    """
    if task.answer is None or not isinstance(said, str):
        return said
    read = task.answer.read if task.on_unsupported == "ignore" else task.answer.validate
    return ToolAnswer(said, read(said))
