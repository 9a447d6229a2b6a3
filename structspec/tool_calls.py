"""What a text of a `Tools` constraint says: calls with their arguments, or an answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from structspec.constraint import Tools
from structspec.errors import OutputInvalid
from structspec.grammars.envelopes import ENVELOPES
from structspec.grammars.tool_calls import finished_calls
from structspec.grammars.tools import tools_of
from structspec.json_value import MAX_ERRORS, parse_json
from structspec.schema import resolve_schema


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call: the tool's name and its arguments, as a dict and as the JSON text written."""

    name: str
    arguments: dict[str, Any]
    text: str


def parse_tool_calls(text: str, tools: Tools) -> list[ToolCall] | str:
    """The calls that a finished text makes, or the answer that it is instead.

    `text` is one that the constraint allowed, its special tokens spelled by name; what stands
    before the calls is left out, and so are the marks around an answer. Arguments are parsed, not
    validated; OutputInvalid is raised for those that Python cannot hold, such as integers of
    thousands of digits. Where calls and answer are both JSON, what may be read as calls is.
    """
    calls = finished_calls(text, tools)
    if not calls:
        return text.removeprefix(ENVELOPES[tools.envelope].before_answer)
    return [
        ToolCall(call.name, _parsed(call.arguments, index, text), call.arguments)
        for index, call in enumerate(calls)
    ]


def _parsed(arguments: str, index: int, text: str) -> Any:
    try:
        return parse_json(arguments, allow_duplicates=True)
    except OutputInvalid as error:
        raise _invalid(text, _below(error.errors, f"/{index}/arguments")) from None


def validate_tool_calls(text: str, tools: Tools) -> list[ToolCall] | str:
    """As `parse_tool_calls`, every call's arguments and a JSON answer held to their schemas.

    Raises OutputInvalid, whose errors read `#/0/arguments/city: message`: 0 is the first call.
    """
    said = parse_tool_calls(text, tools)
    violations = broken_calls(said, tools)
    may_answer = tools.choice == "auto" and tools.response is not None
    if violations and may_answer and not isinstance(said, str):
        answer = text.removeprefix(ENVELOPES[tools.envelope].before_answer)
        if not broken_calls(answer, tools):  # JSON that looks like a call
            return answer
    if violations:
        raise _invalid(text, violations)
    return said


def _invalid(text: str, violations: tuple[str, ...]) -> OutputInvalid:
    message = f"the output is not a valid call of a tool: {'; '.join(violations)}"
    return OutputInvalid(message, text=text, errors=violations)


def broken_calls(said: list[ToolCall] | str, tools: Tools) -> tuple[str, ...]:
    """How calls, or an answer, break the schemas of what may be called and answered."""
    if isinstance(said, str):
        return () if tools.response is None else broken(tools.response.text, said, "")
    schemas = {
        tool.name: json.dumps(tool.parameters)
        for tool in tools_of(tools)
        if tools.choice in ("auto", "required", tool.name)
    }
    found = [
        violation
        for index, call in enumerate(said)
        for violation in (
            broken(schemas[call.name], call.text, f"/{index}/arguments")
            if call.name in schemas
            else (f"#/{index}/name: there is no tool {call.name!r} to be called",)
        )
    ]
    return tuple(found[:MAX_ERRORS])


def broken(schema: str, text: str, place: str) -> tuple[str, ...]:
    """How a JSON text breaks a schema; `place` is where it stands in the whole."""
    try:
        _validator(schema)(text)
    except OutputInvalid as error:
        return _below(error.errors, place)
    return ()


def _below(violations: tuple[str, ...], place: str) -> tuple[str, ...]:
    """Violations of a part, as they read in the whole."""
    return tuple(f"#{place}{violation.removeprefix('#')}" for violation in violations)


@lru_cache(maxsize=256)
def _validator(schema: str) -> Callable[[str], Any]:
    return resolve_schema(schema).validate
