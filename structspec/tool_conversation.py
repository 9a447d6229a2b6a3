"""A model and its tools in turns: calls, their results, and so on until there is an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from structspec.constraint import JsonSchema, Tools
from structspec.errors import GenerationError, InvalidRequest, ServerError
from structspec.grammars.tools import tools_of
from structspec.options import GenerateOptions, Task, resolve_options
from structspec.prompting import show_schema
from structspec.prompts import Prompt, to_messages
from structspec.request import NO_USAGE, Usage
from structspec.results import Result
from structspec.text_target import target_of
from structspec.tool_answer import ToolAnswer
from structspec.tool_calls import ToolCall
from structspec.tool_functions import ToolFunction, to_tools
from structspec.tool_prompt import choose_envelope, has_tools, tell_tools

DEFAULT_MAX_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class ToolRun:
    """What came of a prompt with tools.

    `messages` are the whole conversation, calls and results among them, the answer last: with a
    further message of the user's it may go on. `usage` counts all `num_rounds` outputs.
    """

    answer: Any
    messages: list[dict[str, Any]]
    usage: Usage
    num_rounds: int


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A call that has been written and not been answered."""

    call_id: str
    tool: ToolFunction
    arguments: str


class ToolConversation:
    """One prompt's turns; whoever holds it has the outputs written and the calls made.

        while not over: write `messages` and `tools` under `task`, `take` it, `answer` its calls

    After `max_rounds` outputs with calls the next one must be an answer.
    """

    def __init__(
        self,
        prompt: Prompt,
        functions: Sequence[Callable[..., Any]],
        template: str | None,
        options: GenerateOptions,
        max_rounds: int,
        tool_choice: str = "auto",
        parallel: bool = True,
    ) -> None:
        """`template` is the model's chat template; raises InvalidRequest and GrammarError."""
        if type(max_rounds) is not int or max_rounds < 1:
            raise InvalidRequest(f"max_rounds must be at least 1, not {max_rounds!r}")
        self._tools = {tool.name: tool for tool in to_tools(functions)}
        if len(self._tools) < len(functions):
            raise InvalidRequest("two tools have one name; a tool is called by its __name__")
        self._specs = [tool.spec for tool in self._tools.values()]
        self._envelope = choose_envelope(template)
        self._has_tools = has_tools(template)
        tools = Tools(self._specs, self._envelope)
        tools_of(tools)  # refuses names that no envelope has room for
        if tool_choice not in ("auto", "required", *self._tools):
            raise InvalidRequest(
                f"tool_choice must be 'auto', 'required' or the name of a tool, not {tool_choice!r}"
            )
        self._tool_choice = tool_choice
        self._parallel = parallel
        self._asked = _resolve(options, tools)
        self._messages = to_messages(prompt)
        self._shown = show_schema(self._messages, self._answer_target, self._asked.schema_in_prompt)
        self._added: list[dict[str, Any]] = []
        self._usage = NO_USAGE
        self._num_rounds = 0
        self._num_calls = 0
        self._max_rounds = max_rounds
        self._answer: Any = None
        self.is_over = False

    @property
    def _answer_target(self) -> Any:
        return self._asked.target if isinstance(self._asked.constraint, JsonSchema) else None

    @property
    def messages(self) -> list[dict[str, Any]]:
        """What to go on from, whoever tells the model of its tools."""
        return [*self._shown, *self._added]

    @property
    def prompt(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]] | None]:
        """The messages to go on from, and the tools for the chat template, if it has a place."""
        if self._has_tools:
            return self.messages, self._specs
        return tell_tools(self.messages, self._specs, self._envelope), None

    @property
    def task(self) -> Task:
        """What the next output has to be."""
        constraint = self._asked.constraint
        choice = self._tool_choice if self._num_rounds == 0 else "auto"
        tools = Tools(
            self._specs,
            self._envelope,
            choice=choice if self._num_rounds < self._max_rounds else "none",
            parallel=self._parallel,
            response=constraint if isinstance(constraint, JsonSchema) else None,
        )
        target = target_of(tools)
        return replace(self._asked, constraint=tools, target=target, answer=self._answer_target)

    def take(self, result: Result) -> list[PendingCall]:
        """The calls that an output makes; none where it is the answer. Raises its error."""
        if isinstance(result, Exception):
            if isinstance(result, GenerationError | ServerError):
                result.usage = self._usage + (result.usage or NO_USAGE)
            raise result
        self._usage += result.usage
        self._num_rounds += 1
        if isinstance(result.value, str | ToolAnswer):
            self._take_answer(result.value)
            return []
        pending = [self._pending(call) for call in result.value]
        calls = [_as_message(one, call) for one, call in zip(pending, result.value, strict=True)]
        self._added.append({"role": "assistant", "content": "", "tool_calls": calls})
        return pending

    def answer(self, call: PendingCall, result: str) -> None:
        """Tell the model what a call gave."""
        self._added.append(
            {
                "role": "tool",
                "tool_call_id": call.call_id,
                "name": call.tool.name,
                "content": result,
            }
        )

    @property
    def result(self) -> ToolRun:
        """What came of it all."""
        messages = [*self._messages, *self._added]
        return ToolRun(self._answer, messages, self._usage, self._num_rounds)

    def _take_answer(self, said: str | ToolAnswer) -> None:
        text, self._answer = (said, said) if isinstance(said, str) else (said.text, said.value)
        self._added.append({"role": "assistant", "content": text})
        self.is_over = True

    def _pending(self, call: ToolCall) -> PendingCall:
        self._num_calls += 1
        # nine letters and digits: what the templates of some families insist on
        return PendingCall(f"call{self._num_calls:05}", self._tools[call.name], call.text)


def _resolve(options: GenerateOptions, tools: Tools) -> Task:
    """The options with what an answer is held to, or without an answer's schema with the tools."""
    if options.get("schema") is not None:
        return resolve_options(options)
    if options.get("grammar") is not None:
        raise InvalidRequest("run_tools takes schema= for what its answer has to be, no grammar=")
    return resolve_options({**options, "grammar": tools})


def _as_message(pending: PendingCall, call: ToolCall) -> Mapping[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": pending.call_id, "type": "function", "function": function}
