"""What a server's answer becomes: a Generation, or the error that says why not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from structspec.call_reader import AnswerText, ArgumentsText, CallBegins
from structspec.chat.events import MessageEvent, ReasoningText
from structspec.choosing import Chosen
from structspec.client.holding import Held
from structspec.client.reading import reading
from structspec.client.refusals import of_request, read_error
from structspec.client.text_check import check_text
from structspec.client.told_tokens import ToldTokens, token_fields
from structspec.constraint import JsonSchema, Tools
from structspec.errors import GenerationError, OutputInvalid, ServerError, Truncated
from structspec.generation import Generation
from structspec.json_value import parse_json
from structspec.options import Task
from structspec.request import NO_USAGE, RequestStats, Usage
from structspec.tool_answer import read_answer
from structspec.tool_calls import ToolCall, broken_calls


@dataclass(slots=True)
class Said:
    """One choice of an answer, whole or as far as it has come; or what was said of choices."""

    text: str = ""
    reasoning: str | None = None
    calls: list[Mapping[str, Any]] = field(default_factory=list)
    refusal: str | None = None
    finish_reason: str | None = None
    usage: Usage = NO_USAGE
    stats: RequestStats = field(default_factory=RequestStats)
    chosen: Chosen | None = None
    tokens: ToldTokens = field(default_factory=ToldTokens)


def read_completion(text: str) -> Said:
    """The first choice of a body; raises ServerError for what is no chat completion."""
    with reading("answer is no chat completion and", text):
        body = json.loads(text)
        choice = body["choices"][0]
        message = choice["message"]
        said = Said(
            text=message.get("content") or "",
            reasoning=message.get("reasoning") or message.get("reasoning_content"),
            calls=list(message.get("tool_calls") or ()),
            refusal=message.get("refusal"),
            finish_reason=choice.get("finish_reason"),
        )
        said.tokens.take(choice)
        said.tokens.take_prompt(body)
        read_usage(said, body.get("usage"))
    return said


def read_usage(said: Said, usage: Any) -> None:
    """Take in what an answer says it has used, if it does."""
    if not usage:
        return
    details = usage.get("completion_tokens_details") or {}
    said.usage = Usage(
        usage.get("prompt_tokens") or 0,
        usage.get("completion_tokens") or 0,
        details.get("reasoning_tokens") or 0,
    )
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    said.stats.num_cached_tokens = cached or 0
    said.stats.accepted_prediction_tokens = details.get("accepted_prediction_tokens") or 0
    said.stats.rejected_prediction_tokens = details.get("rejected_prediction_tokens") or 0


def to_generation(
    said: Said, task: Task, *, attempt: int = 1, spent: Usage = NO_USAGE
) -> Generation:
    """The validated result; raises Truncated and OutputInvalid with the text and all usage.

    ServerError too, where something was asked for that the server does not tell.
    """
    usage = spent + said.usage
    try:
        value = _value(said, task)
        tokens = token_fields(said.tokens, task.sampling, has_text=bool(said.text))
    except GenerationError as error:
        told = f"{error} (attempt {attempt})" if attempt > 1 else str(error)
        raise type(error)(
            told, text=said.text, usage=usage, errors=error.errors
        ) from error.__cause__
    except ServerError as error:
        error.text, error.usage = said.text, usage
        raise
    return Generation(
        value=value,
        text=said.text,
        token_ids=(),
        finish_reason="length" if said.finish_reason == "length" else "stop",
        usage=usage,
        stats=said.stats,
        report=None,
        num_attempts=attempt,
        reasoning=said.reasoning,
        **tokens,
    )


def _value(said: Said, task: Task) -> Any:
    if said.chosen is not None:
        return said.chosen
    if said.refusal is not None or said.finish_reason == "content_filter":
        raise OutputInvalid(f"the server refused to answer: {said.refusal or 'content_filter'}")
    constraint, target = task.constraint, task.target
    if constraint is None:
        return said.text
    is_cut = said.finish_reason == "length"
    if is_cut and (isinstance(constraint, Tools) or not _may_be_whole(said.text, task)):
        raise _cut(said)
    try:
        if isinstance(constraint, Tools):
            calls = _calls(said, constraint, is_checked=task.on_unsupported != "ignore")
            return read_answer(calls, task)
        if target is not None:
            is_ignored = task.on_unsupported == "ignore"
            return target.read(said.text) if is_ignored else target.validate(said.text)
        return said.text if task.on_unsupported == "ignore" else check_text(constraint, said.text)
    except OutputInvalid:
        if is_cut:
            raise _cut(said) from None
        raise


def _may_be_whole(text: str, task: Task) -> bool:
    """Whether more tokens could not have changed it: a number cut off is a number still."""
    return not isinstance(task.constraint, JsonSchema) or text.rstrip()[-1:] in ("}", "]", '"')


def _cut(said: Said) -> Truncated:
    return Truncated(
        f"the output was cut after {said.usage.completion_tokens} tokens (max_tokens) before it"
        " was complete; raise max_tokens, or bound the constraint"
    )


def _calls(said: Said, tools: Tools, *, is_checked: bool) -> list[ToolCall] | str:
    """Calls or the answer, as `parse_tool_calls` gives them."""
    functions = [call.get("function") or {} for call in said.calls]
    calls = [
        ToolCall(
            str(function.get("name")),
            parse_json(str(function.get("arguments") or "{}"), allow_duplicates=True),
            str(function.get("arguments") or "{}"),
        )
        for function in functions
    ]
    result = calls or said.text
    if not calls and tools.choice not in ("auto", "none"):
        raise OutputInvalid("the output calls no tool, and one had to be", errors=("#: no call",))
    if len(calls) > 1 and not tools.parallel:
        raise OutputInvalid("the output calls several tools", errors=("#: more than one call",))
    violations = broken_calls(result, tools) if is_checked else ()
    if violations:
        raise OutputInvalid(
            f"the output is not a valid call of a tool: {'; '.join(violations)}", errors=violations
        )
    return result


class StreamReader:
    """Reads the bytes of a streamed answer to one call, however they are cut, into `said`."""

    def __init__(self, held: Held | None) -> None:
        self.said = Said()
        self._events: list[MessageEvent] = []
        self._held = held
        self._unwrapping = None if held is None or held.unwrapping is None else held.unwrapping()
        self._is_done = False
        self._begun = b""  # of a line

    def feed(self, part: bytes) -> str:
        """The text that more bytes add; raises what went wrong on the server's side."""
        # at line feeds only: other ends of lines may stand within JSON
        *lines, self._begun = (self._begun + part).split(b"\n")
        return "".join(map(self._read, lines))

    def _read(self, line: bytes) -> str:
        kind, _, data = line.decode(errors="replace").partition(":")
        if kind != "data" or (data := data.strip()) == "[DONE]":
            self._is_done |= kind == "data"
            return ""
        with reading("stream", data):
            chunk = json.loads(data)
            is_error = "error" in chunk
        if is_error:
            told = read_error(data)
            raise of_request(told, str(told.get("message")), self._held)
        with reading("stream", data):
            read_usage(self.said, chunk.get("usage"))
            self.said.tokens.take_prompt(chunk)
            choices = chunk.get("choices") or ()
            return self._take(choices[0]) if choices else ""

    def _take(self, choice: Mapping[str, Any]) -> str:
        said, delta = self.said, choice.get("delta") or {}
        said.tokens.take(choice)
        said.finish_reason = choice.get("finish_reason") or said.finish_reason
        reasoning = delta.get("reasoning") or delta.get("reasoning_content")
        if reasoning:
            said.reasoning = (said.reasoning or "") + reasoning
            self._events.append(ReasoningText(reasoning))
        if delta.get("refusal"):
            said.refusal = (said.refusal or "") + delta["refusal"]
        text: str = delta.get("content") or ""
        if self._unwrapping is not None:
            text = self._unwrapping.feed(text)
        self._add_text(text)
        for call in delta.get("tool_calls") or ():
            self._take_call(call)
        return text

    def _add_text(self, text: str) -> None:
        self.said.text += text
        if text:
            self._events.append(AnswerText(text))

    def _take_call(self, delta: Mapping[str, Any]) -> None:
        """More of a call; a name comes with its first piece, and some servers repeat it."""
        calls, function = self.said.calls, delta.get("function") or {}
        index = delta.get("index", len(calls) - 1 if not function.get("name") else len(calls))
        if index >= len(calls):
            index = len(calls)
            calls.append({"function": {"name": str(function["name"]), "arguments": ""}})
            self._events.append(CallBegins(index, str(function["name"])))
        if arguments := function.get("arguments"):
            calls[index]["function"]["arguments"] += arguments
            self._events.append(ArgumentsText(index, arguments))

    def take_events(self) -> list[MessageEvent]:
        """What was told since the last call, calls of tools and reasoning among it."""
        events, self._events = self._events, []
        return events

    def finish(self) -> str:
        """What the end adds; raises ServerError where the answer had not come to its own."""
        if self.said.finish_reason is None and not self._is_done:
            raise ServerError("the server ended its stream in the middle of the answer")
        rest = "" if self._unwrapping is None else self._unwrapping.finish()
        self._add_text(rest)
        return rest
