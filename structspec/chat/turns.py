"""One turn of a conversation: a model calls tools or answers; told whole, or as it is written.

turn = make_turn(runner, messages, options, tools, "auto", parallel=True)
said = take(runner, turn)                      # a Said
for one in stream(runner, turn): ...           # events, and at last the Said
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from structspec.call_reader import AnswerText, CallReader
from structspec.call_run import result_of
from structspec.chat.events import MessageEvent, ReasoningText
from structspec.chat.fields import refuse
from structspec.chat.formats import Wanted
from structspec.chat.logprobs import LogprobsReader, to_entry
from structspec.chat.spelled_text import SpelledText
from structspec.chat.tool_choice import read_tools
from structspec.constraint import JsonSchema, Tools
from structspec.errors import GenerationError
from structspec.event_loop import in_event_loop
from structspec.generation import Generation
from structspec.grammars.envelopes import ENVELOPES
from structspec.grammars.tools import tools_of
from structspec.options import GenerateOptions, Task
from structspec.priming import primed
from structspec.prompting import show_schema
from structspec.request import Request
from structspec.runner import Runner, Told
from structspec.text_target import target_of
from structspec.tool_answer import ToolAnswer
from structspec.tool_calls import ToolCall
from structspec.tool_prompt import choose_envelope, place_tools

_CONSTRAINTS = ("schema", "regex", "choices", "grammar")


@dataclass(frozen=True, slots=True)
class Turn:
    """What the model is asked to say next, checked: `messages` under `task`.

    `prompt` is what a chat template is given of it: messages, and tools if it has a place for them.
    """

    messages: list[dict[str, Any]]
    prompt: tuple[list[dict[str, Any]], list[dict[str, Any]] | None]
    task: Task
    tools: Tools | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """What came of a turn: calls, with the text before them, or an answer.

    `value` is the answer's where a constraint was asked for, else its text; None where there are
    calls. `logprobs` are those of the text in OpenAI's form, where they were asked for.
    """

    text: str
    calls: tuple[ToolCall, ...]
    value: Any
    generation: Generation
    logprobs: list[dict[str, Any]] | None = None


def make_turn(
    runner: Runner,
    messages: Sequence[Mapping[str, Any]],
    options: GenerateOptions,
    tools: Sequence[Mapping[str, Any]] | None = None,
    tool_choice: str | Mapping[str, Any] | None = None,
    *,
    parallel: bool | None = None,
) -> Turn:
    """Messages as `read_messages` gives them, tools and their choice in any of OpenAI's forms.

    Of the constraints of `generate` only `schema=` goes with tools that may be called: an answer
    conforms to it. With a tool that must be called it is of no account. Raises InvalidRequest and
    GrammarError.
    """
    chosen = read_tools(tools, tool_choice, parallel)
    given = [*map(dict, messages)]
    if chosen is None:
        prompt = place_tools(given, (), runner.chat_template)
        return Turn(given, prompt, runner.resolve(options))
    asked = runner.resolve(options) if _constraint_in(options) else None
    envelope = choose_envelope(runner.chat_template)
    held: Tools = chosen.constrain(_wanted(asked), envelope).options["grammar"]
    tools_of(held)  # refuses names that no envelope has room for
    free: GenerateOptions = {**options, "grammar": held}
    task = runner.resolve(free) if asked is None else replace(asked, constraint=held)
    answer = asked.target if asked is not None and held.response is not None else None
    shown = show_schema(given, answer, task.schema_in_prompt)
    prompt = place_tools(shown, chosen.tools, runner.chat_template)
    return Turn(shown, prompt, replace(task, target=target_of(held), answer=answer), held)


def _constraint_in(options: GenerateOptions) -> bool:
    return any(options.get(name) is not None for name in _CONSTRAINTS)


def _wanted(asked: Task | None) -> Wanted | None:
    if asked is None:
        return None
    if not isinstance(asked.constraint, JsonSchema):
        raise refuse("with tools an answer can be held to schema= only", "tools")
    return Wanted({"schema": asked.constraint}, "schema")


class _Reader:
    """Reads what one request is told to have written; a server has read its own."""

    def __init__(self, runner: Any, turn: Turn, prepared: Any) -> None:
        self._runner, self._turn, self._prepared = runner, turn, prepared
        self._is_here = isinstance(prepared.request, Request)
        self._calls = None if turn.tools is None else CallReader(turn.tools)
        self._spelled = self._speller()

    def _speller(self) -> SpelledText | None:
        """What spells the special tokens that calls are read by, where they are."""
        tools = self._turn.tools
        if tools is None or not self._is_here or not ENVELOPES[tools.envelope].markers:
            return None
        return SpelledText(self._prepared.request, self._runner.vocabulary)

    def take(self, told: Any) -> Iterator[MessageEvent]:
        """What news of it says."""
        if not self._is_here:
            yield from told.events
            return
        if told.reasoning:
            yield ReasoningText(told.reasoning)
        text = self._spelled.take(is_last=told.is_last) if self._spelled else told.text
        if self._calls is not None:
            yield from self._calls.feed(text)
            yield from self._calls.finish() if told.is_last else ()
        elif text:
            yield AnswerText(text)

    def said(self, generation: Generation) -> Said:
        """What its result is."""
        turn, value = self._turn, generation.value
        logprobs = self._logprobs(generation)
        if turn.tools is None:
            return Said(generation.text, (), value, generation, logprobs)
        if isinstance(value, str):
            return Said(value, (), value, generation, logprobs)
        if isinstance(value, ToolAnswer):
            return Said(value.text, (), value.value, generation, logprobs)
        return Said(self._before(turn.tools, generation), tuple(value), None, generation, logprobs)

    def _before(self, tools: Tools, generation: Generation) -> str:
        """The text that stands before calls."""
        if not self._is_here:
            return generation.text
        spelled = self._speller()
        text = spelled.take(is_last=True) if spelled else generation.text
        events = CallReader(tools).feed(text)
        return "".join(event.text for event in events if isinstance(event, AnswerText))

    def _logprobs(self, generation: Generation) -> list[dict[str, Any]] | None:
        if generation.logprobs is None:
            return None
        if not self._is_here:
            return [to_entry(one) for one in generation.logprobs]
        return LogprobsReader(self._prepared.request, self._runner.vocabulary).take()


def take(runner: Runner, turn: Turn) -> Said:
    """What the model says; drawn again as often as the turn's task allows. Raises its error."""
    prepared = _prepare(runner, turn)
    while True:
        news: queue.SimpleQueue[Told] = queue.SimpleQueue()
        runner.start(prepared, news.put)
        try:
            while not news.get().is_last:
                pass
        except BaseException:  # also KeyboardInterrupt: nobody will read it
            runner.cancel(prepared)
            raise
        result = result_of(runner, prepared)
        again = runner.next_attempt(prepared, result)
        if again is None:
            return _said(_Reader(runner, turn, prepared), result)
        prepared = again


async def take_async(runner: Runner, turn: Turn) -> Said:
    """As `take`; cancelling the task cancels the request."""
    prepared = _prepare(runner, turn)
    while True:
        news: asyncio.Queue[Told] = asyncio.Queue()
        runner.start(prepared, in_event_loop(news.put_nowait))
        try:
            while not (await news.get()).is_last:
                pass
        except BaseException:
            runner.cancel(prepared)
            raise
        result = result_of(runner, prepared)
        again = runner.next_attempt(prepared, result)
        if again is None:
            return _said(_Reader(runner, turn, prepared), result)
        prepared = again


def stream(runner: Runner, turn: Turn) -> Generator[MessageEvent | Said, None, None]:
    """What the model says, as it becomes certain, and behind it the whole; starts at once.

    One attempt: what is wrong with it is raised at the end. Closing the iterator cancels it.
    """
    prepared = _prepare(runner, turn)
    news: queue.SimpleQueue[Told] = queue.SimpleQueue()
    runner.start(prepared, news.put, is_streamed=True)
    return primed(_read(runner, turn, prepared, news.get))


def _read(
    runner: Runner, turn: Turn, prepared: Any, get: Callable[[], Told]
) -> Generator[MessageEvent | Said | None, None, None]:
    reader, is_last = _Reader(runner, turn, prepared), False
    try:
        yield None
        while not is_last:
            told = get()
            is_last = told.is_last
            yield from reader.take(told)
        yield reader.said(runner.finish(prepared))
    except GenerationError as error:
        error.usage = error.usage or runner.usage_of(prepared)
        raise
    finally:
        if not is_last:
            runner.cancel(prepared)


async def stream_async(runner: Runner, turn: Turn) -> AsyncGenerator[MessageEvent | Said, None]:
    """As `stream`; starts when the first piece is asked for."""
    prepared = _prepare(runner, turn)
    news: asyncio.Queue[Told] = asyncio.Queue()
    runner.start(prepared, in_event_loop(news.put_nowait), is_streamed=True)
    reader, is_last = _Reader(runner, turn, prepared), False
    try:
        while not is_last:
            told = await news.get()
            is_last = told.is_last
            for event in reader.take(told):
                yield event
        yield reader.said(runner.finish(prepared))
    except GenerationError as error:
        error.usage = error.usage or runner.usage_of(prepared)
        raise
    finally:
        if not is_last:
            runner.cancel(prepared)


def _prepare(runner: Any, turn: Turn) -> Any:
    return runner.prepare_turn(turn)


def _said(reader: _Reader, result: Generation | Exception) -> Said:
    if isinstance(result, Exception):
        raise result
    return reader.said(result)
