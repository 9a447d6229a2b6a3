"""Python callables as tools: what a model is told of them, and calls with typed arguments."""

from __future__ import annotations

import asyncio
import inspect
import typing
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NotRequired

from pydantic_core import to_json
from typing_extensions import TypedDict

from structspec.errors import InvalidRequest, OutputInvalid
from structspec.schema import SchemaTarget, resolve_schema

_IGNORED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True, slots=True)
class ToolFunction:
    """A callable as a tool: its schema in OpenAI's form, and what reads arguments for it."""

    function: Callable[..., Any]
    spec: dict[str, Any]
    arguments: SchemaTarget

    @property
    def name(self) -> str:
        """What it is called by."""
        return str(self.spec["function"]["name"])

    def run(self, arguments: str) -> str:
        """The result of a call with these arguments, JSON text, as text; one that fails says why.

        Texts stay as they are, other values are written as JSON. A coroutine is run in an event
        loop of its own.
        """
        try:
            value = self.function(**self.arguments.validate(arguments))
            if inspect.isawaitable(value):
                with ThreadPoolExecutor(1) as thread:  # here a loop may be running already
                    value = thread.submit(asyncio.run, _awaited(value)).result()
            return _text_of(value)
        except Exception as error:
            return _explain(error)

    async def run_async(self, arguments: str) -> str:
        """As `run`; what is no coroutine function runs on a thread and keeps no event loop busy."""
        try:
            values = self.arguments.validate(arguments)
            if inspect.iscoroutinefunction(self.function):
                return _text_of(await self.function(**values))
            value = await asyncio.to_thread(self.function, **values)
            return _text_of(await value if inspect.isawaitable(value) else value)
        except Exception as error:
            return _explain(error)


def to_tools(functions: Sequence[Callable[..., Any]]) -> list[ToolFunction]:
    """The tools that these callables are; raises InvalidRequest for what cannot be one.

    The docstring is the description, annotations give the arguments' types as pydantic reads them:
    `Annotated[int, Field(description=..., le=9)]` says more. Those with a default may be left out.
    """
    if not isinstance(functions, Sequence) or not functions:
        raise InvalidRequest(f"tools must be a list of at least one callable, not {functions!r}")
    return [to_tool(function) for function in functions]


def to_tool(function: Callable[..., Any]) -> ToolFunction:
    """The tool that a callable is; see `to_tools`."""
    if not callable(function):
        raise InvalidRequest(f"a tool is a Python callable, not {function!r}")
    name = getattr(function, "__name__", type(function).__name__)
    arguments = resolve_schema(TypedDict(name, _fields_of(function, name)))  # type: ignore[operator]
    described = {"description": text} if (text := inspect.getdoc(function)) else {}
    spec = {"name": name, **described, "parameters": _untitled(arguments.json_schema)}
    return ToolFunction(function, {"type": "function", "function": spec}, arguments)


def _fields_of(function: Callable[..., Any], name: str) -> dict[str, Any]:
    called = function if inspect.isroutine(function) else type(function).__call__
    try:
        hints = typing.get_type_hints(called, include_extras=True)
        parameters = inspect.signature(function).parameters.values()
    except (NameError, TypeError, ValueError) as error:
        raise InvalidRequest(
            f"the arguments of the tool {name!r} cannot be read: {error}"
        ) from None
    fields: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.kind in _IGNORED:
            continue
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise InvalidRequest(
                f"the tool {name!r} takes {parameter.name!r} by its place only; tools are called"
                " with names"
            )
        kind = hints.get(parameter.name, Any)
        is_optional = parameter.default is not inspect.Parameter.empty
        fields[parameter.name] = NotRequired[kind] if is_optional else kind
    return fields


def _untitled(schema: dict[str, Any]) -> dict[str, Any]:
    """Without the titles that pydantic makes of names: they tell a model nothing new."""
    kept = {key: value for key, value in schema.items() if key not in ("title", "properties")}
    properties = {
        name: {key: value for key, value in one.items() if key != "title"}
        for name, one in schema.get("properties", {}).items()
    }
    return {**kept, "properties": properties}


async def _awaited(value: Any) -> Any:
    return await value


def _text_of(value: Any) -> str:
    return value if isinstance(value, str) else to_json(value, fallback=str).decode()


def _explain(error: Exception) -> str:
    """What a model is told of a call that failed."""
    if isinstance(error, OutputInvalid):
        return f"Error: the arguments are not valid: {'; '.join(error.errors)}"
    return f"Error: {type(error).__name__}: {error}"
