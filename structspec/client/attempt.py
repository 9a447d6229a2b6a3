"""What is asked of a server at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from structspec.options import Task
from structspec.prompts import Prompt


@dataclass(frozen=True, slots=True)
class Attempt:
    """A prompt, what its output must be, and how it is drawn.

    `sampling` is the task's, or what follows from it in a further attempt. `reads_calls`: who waits
    for it looks for calls of tools beside the text.
    """

    prompt: Prompt
    task: Task
    sampling: Mapping[str, Any]
    reads_calls: bool = False
