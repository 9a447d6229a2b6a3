"""Structured output of LangChain: from the schemas that it knows to values."""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, get_args

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.output_parsers import BaseTransformOutputParser
from langchain_core.outputs import ChatGeneration, Generation
from langchain_core.runnables import Runnable, RunnableLambda
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_json_schema, convert_to_openai_tool
from pydantic import ConfigDict
from pydantic.v1 import BaseModel as BaseModelV1
from typing_extensions import is_typeddict

from structspec.errors import InvalidRequest, OutputInvalid, Truncated
from structspec.partial_values import PartialValues
from structspec.request import Usage
from structspec.schema import SchemaTarget, resolve_schema

Method = Literal["json_schema", "function_calling", "json_mode"]
METHODS = get_args(Method)

_TOOL_KEYS = ("function", "input_schema", "toolSpec")  # of dicts that describe tools
_NAMED_TOOL = {"name", "description", "parameters", "strict"}  # all that others of them have


@dataclass(frozen=True, slots=True)
class OutputSchema:
    """What output has to be: for the engine, for people, and as a value again.

    `asked` goes to the engine as a `schema=`. `is_plain` where values are dicts and lists, which
    are of use before they are whole.
    """

    asked: Any
    json_schema: dict[str, Any]
    name: str
    description: str
    is_plain: bool
    validate: Callable[[str], Any] = field(repr=False)
    given: Any = field(default=None, repr=False)  # what it was read from

    def __reduce__(self) -> tuple[Callable[[Any], OutputSchema], tuple[Any]]:
        return read_schema, (self.given,)

    @property
    def tool(self) -> dict[str, Any]:
        """A tool whose arguments are the output; raises InvalidRequest where they cannot be."""
        if not _is_object(self.json_schema, self.json_schema.get("$defs", {})):
            raise InvalidRequest(
                f"the arguments of a tool are an object, and {self.name} is none: use"
                " method='json_schema'"
            )
        return self.as_tool

    @property
    def as_tool(self) -> dict[str, Any]:
        """The output in the form of a tool, which LangChain's callbacks are told of."""
        function: dict[str, Any] = {"name": self.name, "parameters": self.json_schema}
        if self.description:
            function["description"] = self.description
        return {"type": "function", "function": function}

    @property
    def response_format(self) -> dict[str, Any]:
        """The output as OpenAI's API is asked for it."""
        inner = {"name": self.name, "schema": self.json_schema, "strict": True}
        return {"type": "json_schema", "json_schema": inner}


def read_schema(schema: Any) -> OutputSchema:
    """A schema as LangChain takes it: pydantic models of both kinds, TypedDicts, JSON schemas,
    tools in OpenAI's, Anthropic's and Amazon's forms; and whatever else goes as `schema=`.

    Raises InvalidRequest and GrammarError for others.
    """
    return replace(_read(schema), given=schema)


def _read(schema: Any) -> OutputSchema:
    if isinstance(schema, type) and issubclass(schema, BaseModelV1):
        return _of_pydantic_v1(schema)
    if isinstance(schema, Mapping):
        return _of_json_schema(_of_mapping(schema))
    if is_typeddict(schema) or isinstance(schema, BaseTool) or inspect.isroutine(schema):
        return _of_json_schema(convert_to_json_schema(schema))
    target = resolve_schema(schema)
    return _output(schema, target, target.validate, is_plain=isinstance(schema, str | bool))


def _of_mapping(given: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON schema that a dict is, or has in it: a tool's, or that of a response format."""
    inner = given.get("json_schema") if given.get("type") == "json_schema" else given
    if isinstance(inner, Mapping) and "name" in inner and isinstance(inner.get("schema"), Mapping):
        told = {key: inner[key] for key in ("description",) if inner.get(key)}
        return {"title": inner["name"], **told, **inner["schema"]}
    # a schema of properties may be called "name" too; taken for a tool it would lose them
    is_tool = any(key in given for key in _TOOL_KEYS) or (
        "name" in given and _NAMED_TOOL.issuperset(given)
    )
    if not is_tool:
        return dict(given)
    return {"type": "object", "properties": {}, **convert_to_json_schema(dict(given))}


def _of_json_schema(schema: dict[str, Any]) -> OutputSchema:
    target = resolve_schema(schema)
    return _output(target.json_schema, target, target.validate, is_plain=True)


def _of_pydantic_v1(model: type[BaseModelV1]) -> OutputSchema:
    target = resolve_schema(model.schema())

    def validate(text: str) -> BaseModelV1:
        value = target.validate(text)
        try:
            return model.parse_obj(value)
        except ValueError as error:
            raise OutputInvalid(
                f"the output is not a valid {model.__name__}: {error}",
                text=text,
                errors=tuple(str(error).splitlines()),
            ) from error

    return _output(target.json_schema, target, validate, is_plain=False)


def _output(
    asked: Any, target: SchemaTarget, validate: Callable[[str], Any], *, is_plain: bool
) -> OutputSchema:
    description = str(target.json_schema.get("description", ""))
    name = _as_name(target.name)
    return OutputSchema(asked, target.json_schema, name, description, is_plain, validate)


def _as_name(name: str) -> str:
    """What a tool may be called."""
    return "".join(c if c.isalnum() or c in "_-" else "_" for c in name)[:64] or "output"


def _is_object(schema: Any, parts: Mapping[str, Any]) -> bool:
    """Whether a JSON schema says that its values are objects; `parts` are its `$defs`."""
    if not isinstance(schema, Mapping):
        return False
    if (reference := schema.get("$ref")) is not None:
        part = parts.get(str(reference).removeprefix("#/$defs/"))
        rest = {name: other for name, other in parts.items() if other is not part}  # it may recur
        return _is_object(part, rest)
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return all(_is_object(one, parts) for one in schema[key])
    return "properties" in schema or schema.get("type") == "object"


def for_tracing(schema: Any, target: OutputSchema) -> dict[str, Any]:
    """The schema as LangChain's callbacks are told it: in its own words, where it has some."""
    try:
        return dict(convert_to_openai_tool(schema))
    except (ValueError, TypeError, KeyError, AttributeError):
        return target.as_tool


def asked_by(method: Method, target: OutputSchema, *, is_any: bool) -> dict[str, Any]:
    """What a call is given to have the output; with `is_any` all objects will do."""
    if method == "function_calling":
        tool = target.tool
        choice = {"type": "function", "function": {"name": target.name}}
        return {"tools": [tool], "tool_choice": choice, "parallel_tool_calls": False}
    if is_any:
        return {"response_format": {"type": "json_object"}}
    asked: dict[str, Any] = {"response_format": target.response_format}
    if target.asked is not target.json_schema:  # a Python type, which says more
        asked["output_type"] = target.asked
    return asked


def with_raw(
    bound: Runnable[Any, Any], parser: StructuredOutputParser
) -> Runnable[Any, dict[str, Any]]:
    """The message and its value, or what was wrong with it, in one dict; streams give one too."""
    # the model stands first, and in no map: options of a call reach what stands first alone
    return bound | RunnableLambda(partial(_parsed, parser))


def _parsed(parser: StructuredOutputParser, raw: AIMessage) -> dict[str, Any]:
    if raw.tool_calls and not parser.is_call:  # it had the choice, and calls instead
        return {"raw": raw, "parsed": None, "parsing_error": None}
    try:
        value = parser.parse_result([ChatGeneration(message=raw)])
    except Exception as error:  # whatever a validator of the user's raises is told
        return {"raw": raw, "parsed": None, "parsing_error": error}
    return {"raw": raw, "parsed": value, "parsing_error": None}


class StructuredOutputParser(BaseTransformOutputParser[Any]):
    """Values out of messages: of their text, or of their first call with `is_call`.

    With `is_partial` a stream gives values as they grow, see PartialValues; without it the whole
    one alone. Raises OutputInvalid, and Truncated for what was cut.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    target: OutputSchema
    is_call: bool = False
    is_partial: bool = False

    @property
    def _type(self) -> str:
        return "structspec"

    def parse(self, text: str) -> Any:
        """The value that a text is."""
        return self.target.validate(text)

    def parse_result(self, result: list[Generation], *, partial: bool = False) -> Any:
        """The value of a message; `partial` changes nothing: it has to be whole."""
        [first, *_] = result
        return (
            self._value(first.message)
            if isinstance(first, ChatGeneration)
            else self.parse(first.text)
        )

    def _value(self, message: BaseMessage) -> Any:
        text = self._text(message)
        _raise_failed(message, text)
        if not self.is_call and isinstance(message, AIMessage) and message.tool_calls:
            raise OutputInvalid(
                "the model calls tools instead of answering; include_raw=True tells of the calls",
                text=text,
            )
        return self.parse(text)

    def _text(self, message: BaseMessage) -> str:
        if not self.is_call:
            return str(message.text)
        calls = message.tool_calls if isinstance(message, AIMessage) else []
        if not calls:
            _raise_failed(message, str(message.text))
            raise OutputInvalid(
                "the output calls no tool, and one had to be", text=str(message.text)
            )
        return json.dumps(calls[0]["args"], ensure_ascii=False)

    def _transform(self, input: Iterator[str | BaseMessage]) -> Iterator[Any]:
        growing = _Growing(self)
        for chunk in input:
            yield from growing.take(chunk)
        yield from growing.finish()

    async def _atransform(self, input: AsyncIterator[str | BaseMessage]) -> AsyncIterator[Any]:
        growing = _Growing(self)
        async for chunk in input:
            for value in growing.take(chunk):
                yield value
        for value in growing.finish():
            yield value


class _Growing:
    """One streamed message, and what of its value is there."""

    def __init__(self, parser: StructuredOutputParser) -> None:
        self._parser = parser
        self._values = PartialValues(parser.target.asked) if parser.is_partial else None
        self._text = ""
        self._last: BaseMessage | None = None  # that tells how it ended

    def take(self, chunk: str | BaseMessage) -> Iterator[Any]:
        """What a chunk adds."""
        text = chunk if isinstance(chunk, str) else self._new_text(chunk)
        if isinstance(chunk, BaseMessage) and chunk.response_metadata:
            self._last = chunk
        self._text += text
        if text and self._values is not None:
            yield from self._values.take(text)

    def _new_text(self, chunk: BaseMessage) -> str:
        if not self._parser.is_call:
            return str(chunk.text)
        if isinstance(chunk, AIMessageChunk):
            parts = (one for one in chunk.tool_call_chunks if not one.get("index"))
            return "".join(one["args"] or "" for one in parts)
        return self._parser._text(chunk)

    def finish(self) -> Iterator[Any]:
        """The whole value; raises what is wrong with it."""
        if self._last is not None:
            _raise_failed(self._last, self._text)
        yield self._parser.parse(self._text)


def _raise_failed(message: BaseMessage, text: str) -> None:
    """Raise what ended a message, if that was an error."""
    error = message.response_metadata.get("error")
    if error is None:
        return
    usage = getattr(message, "usage_metadata", None)
    spent = Usage(usage["input_tokens"], usage["output_tokens"]) if usage else None
    kind = Truncated if error["type"] == Truncated.__name__ else OutputInvalid
    raise kind(error["message"], text=text, usage=spent)
