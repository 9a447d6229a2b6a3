"""Sets of tools: the form of their calls. Reading them back is in `tool_calls`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from structspec.constraint import JsonSchema, Tools
from structspec.errors import GrammarError
from structspec.grammars.envelopes import ENVELOPES, EnvelopeText
from structspec.grammars.form import (
    AnyText,
    Form,
    Json,
    Marker,
    Repeat,
    Text,
    either,
    sequence,
)

_NAME = re.compile(r'[^\s"\\<>{}|｜]+')
_NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that may be called: its parameters' schema, and where that stands in the list."""

    name: str
    parameters: dict[str, Any]
    pointer: str


def read_tools(constraint: Tools) -> Form:
    """The form of a set of tools; raises GrammarError with a pointer into the list."""
    if constraint.envelope not in ENVELOPES:
        names = ", ".join(ENVELOPES)
        raise GrammarError(f"envelope must be one of {names}, not {constraint.envelope!r}")
    envelope = ENVELOPES[constraint.envelope]
    tools = tools_of(constraint)
    writer = _Writer(constraint, envelope)
    match constraint.choice:
        case "none":
            return writer.answer()
        case "auto":
            return writer.calls_or_answer(tools) if tools else writer.answer()
        case "required":
            if not tools:
                raise GrammarError("a call is required, but there are no tools", pointer="#")
            return writer.calls(tools, is_single=not constraint.parallel)
        case name:
            named = [tool for tool in tools if tool.name == name]
            if not named:
                raise GrammarError(f"there is no tool {name!r} to be called", pointer="#")
            return writer.calls(named, is_single=True)


def tools_of(constraint: Tools) -> list[Tool]:
    """The tools of a set, in its order; raises GrammarError with a pointer into the list."""
    found: dict[str, Tool] = {}
    for index, entry in enumerate(json.loads(constraint.text)):
        tool = _tool(entry, f"#/{index}")
        if tool.name in found:
            raise GrammarError(f"there are two tools {tool.name!r}", pointer=f"#/{index}")
        found[tool.name] = tool
    return list(found.values())


def _tool(entry: Any, pointer: str) -> Tool:
    if not isinstance(entry, dict):
        raise GrammarError("a tool is an object", pointer=pointer)
    if entry.get("type", "function") != "function":
        raise GrammarError(f"only functions can be called, not {entry['type']!r}", pointer=pointer)
    if "function" in entry:
        entry, pointer = entry["function"], f"{pointer}/function"
    name = entry.get("name") if isinstance(entry, dict) else None
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise GrammarError(f"{name!r} is no name for a tool", pointer=f"{pointer}/name")
    for other in ("input_schema", "inputSchema"):
        if other in entry:
            raise GrammarError(
                "arguments are described by 'parameters'", pointer=f"{pointer}/{other}"
            )
    parameters = entry.get("parameters") or _NO_PARAMETERS
    if not isinstance(parameters, dict) or parameters.get("type", "object") != "object":
        raise GrammarError("must be a schema of an object", pointer=f"{pointer}/parameters")
    return Tool(name, {"type": "object", **parameters}, f"{pointer}/parameters")


@dataclass(frozen=True, slots=True)
class _Writer:
    """The form of calls and answers in one envelope."""

    constraint: Tools
    envelope: EnvelopeText

    def answer(self) -> Form:
        """What is written instead of calls."""
        response = self.constraint.response
        content: Form = AnyText((self.envelope.trigger,), None, "#")
        if response is not None:
            content = Json(_with_text(response), "#")
        return sequence(*self._marked(self.envelope.before_answer), content)

    def calls_or_answer(self, tools: list[Tool]) -> Form:
        """The union; free text may also come before calls."""
        is_single = not self.constraint.parallel
        response = self.constraint.response
        if response is None and not self.envelope.before_answer:
            free = self.answer()
            return either(free, sequence(free, self.calls(tools, is_single=is_single)))
        if response is None or self.envelope.arguments_key is None:
            return either(self.calls(tools, is_single=is_single), self.answer())
        # A call and the answer are both JSON and may begin alike: one schema holds them.
        one = self._json(
            {"anyOf": [*self._call_schemas(tools, 0), _embedded(response, len(tools))]}
        )
        if is_single:
            return one
        call = self._json({"anyOf": self._call_schemas(tools, 0)})
        return either(one, sequence(call, self._more(call, minimum=1)))

    def calls(self, tools: list[Tool], *, is_single: bool) -> Form:
        """One call, or one after the other."""
        before = self.envelope.before_name
        call = sequence(*self._marked(before), self._rest(tools))
        first = sequence(*self._marked(self.envelope.opening + before), self._rest(tools))
        more = () if is_single or self.envelope.separator is None else (self._more(call),)
        return sequence(first, *more, *self._marked(self.envelope.closing))

    def _more(self, call: Form, minimum: int = 0) -> Form:
        assert self.envelope.separator is not None
        return Repeat(sequence(*self._marked(self.envelope.separator), call), minimum, None, "#")

    def _rest(self, tools: list[Tool]) -> Form:
        """From the name on."""
        envelope = self.envelope
        return either(
            *(
                sequence(
                    *self._marked(written_name(tool.name, envelope) + envelope.before_arguments),
                    self._json(tool.parameters, tool.pointer),
                    *self._marked(envelope.after_arguments),
                )
                for tool in tools
            ),
            pointer="#",
        )

    def _call_schemas(self, tools: list[Tool], start: int) -> list[dict[str, Any]]:
        key = self.envelope.arguments_key
        assert key is not None
        return [
            {
                "type": "object",
                "properties": {
                    "name": {"const": tool.name},
                    key: rebase(tool.parameters, f"/anyOf/{index}/properties/{key}"),
                },
                "required": ["name", key],
                "additionalProperties": False,
            }
            for index, tool in enumerate(tools, start)
        ]

    def _json(self, schema: Mapping[str, Any], pointer: str = "#") -> Json:
        text = json.dumps(schema, ensure_ascii=False)
        constraint = JsonSchema(text, style=self.constraint.style, closed=self.constraint.closed)
        return Json(constraint, pointer)

    def _marked(self, text: str) -> list[Form]:
        """A fixed text, its markers as such."""
        envelope = self.envelope
        if not envelope.markers or not text:
            return [Text(text, "#")]
        pieces = re.split(f"({'|'.join(map(re.escape, envelope.markers))})", text)
        return [
            Marker(piece, envelope.needs_tokens, "#")
            if piece in envelope.markers
            else Text(piece, "#")
            for piece in pieces
        ]


def written_name(name: str, envelope: EnvelopeText) -> str:
    """A tool's name as calls spell it."""
    return json.dumps(name, ensure_ascii=False)[1:-1] if envelope.is_json_name else name


def _with_text(constraint: JsonSchema) -> JsonSchema:
    """The constraint with its schema as text, as forms have it."""
    return JsonSchema(
        constraint.text, constraint.style, constraint.property_order, constraint.closed
    )


def _embedded(response: JsonSchema, index: int) -> Any:
    return rebase(json.loads(response.text), f"/anyOf/{index}")


_DATA = ("const", "enum", "default", "examples")


def rebase(schema: Any, place: str) -> Any:
    """A schema that stands at `place` of a larger one: its references into itself follow it."""
    if isinstance(schema, list):
        return [rebase(part, place) for part in schema]
    if not isinstance(schema, dict):
        return schema
    result = {}
    for key, value in schema.items():
        is_reference = key == "$ref" and isinstance(value, str)
        if is_reference and (value == "#" or value.startswith("#/")):
            result[key] = f"#{place}{value[1:]}"
        else:
            result[key] = value if key in _DATA else rebase(value, place)
    return result
