"""Who runs the requests of a call: the engine in this process, or a server elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from structspec.choosing import Chosen
from structspec.generation import Generation
from structspec.options import GenerateOptions, Task
from structspec.prompts import Prompt
from structspec.request import Usage

if TYPE_CHECKING:
    from structspec.tool_conversation import ToolConversation


class Told(Protocol):
    """New text of one request, and whether it is the last that is heard of it."""

    @property
    def text(self) -> str:
        """What was added."""

    @property
    def is_last(self) -> bool:
        """Whether the request has ended."""


@dataclass(frozen=True, slots=True)
class Scoring:
    """Prepared requests that score choices, and what makes a Chosen of their results."""

    prepared: Sequence[Any]
    compare: Callable[[Sequence[Generation]], Chosen]


class Runner(Protocol):
    """Prepares requests, starts them and reads their results; thread-safe.

    What it prepares is its own affair: whoever calls only hands it back.
    """

    @property
    def chat_template(self) -> str | None:
        """The model's, where there is one and it is known."""

    def resolve(self, options: GenerateOptions) -> Task:
        """Check a call's options; raises InvalidRequest and GrammarError."""

    def prepare(self, prompt: Prompt, task: Task) -> Any:
        """A request that has not started; raises InvalidRequest."""

    def prepare_all(
        self, prompts: Sequence[Prompt], task: Task, num_outputs: int | None = None
    ) -> Sequence[Any]:
        """A request for each prompt, or so many in a row, each with a seed of its own."""

    def prepare_choices(self, prompt: Prompt, choices: Sequence[str]) -> Scoring:
        """What scores these answers; raises InvalidRequest."""

    def prepare_turn(self, conversation: ToolConversation) -> Any:
        """A request for what comes next in a conversation with tools."""

    def start(
        self, prepared: Any, listener: Callable[[Told], None], *, is_streamed: bool = False
    ) -> None:
        """Start a request; `listener` hears of it until it has ended, perhaps on another thread.

        Only where it `is_streamed` text comes before the end.
        """

    def cancel(self, prepared: Any) -> None:
        """End a request early; its listener still hears of the end."""

    def finish(self, prepared: Any) -> Generation:
        """The result of a request that has ended; raises what it failed with."""

    def next_attempt(self, prepared: Any, result: Generation | Exception) -> Any | None:
        """A request for other output than what `finish` gave; None where all is said."""

    def usage_of(self, prepared: Any) -> Usage:
        """What a request and the attempts before it have used so far."""
