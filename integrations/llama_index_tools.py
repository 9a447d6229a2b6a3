"""LlamaIndex's tools in OpenAI's form, and calls of them out of responses."""

from __future__ import annotations

import contextlib
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from types import SimpleNamespace
from typing import Annotated, Any

from llama_index.core.base.llms.types import ChatResponse, ToolCallBlock
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.tools.function_tool import FunctionTool
from llama_index.core.tools.types import BaseTool, ToolMetadata
from llama_index.core.tools.utils import create_schema_from_function
from pydantic import BaseModel, Field, create_model

from structspec.errors import GenerationError
from structspec.integrations.llama_index_messages import other_calls
from structspec.integrations.llama_index_partial import partial_value
from structspec.json_annotations import without_annotations
from structspec.schema import resolve_schema

_MADE_BY = create_schema_from_function.__module__  # models that LlamaIndex makes of functions


class NoToolCall(GenerationError, ValueError):
    """The model called no tool where one had to be called; `text` is what it said instead."""


def to_tools(tools: Sequence[BaseTool | Mapping[str, Any]] | None) -> list[Mapping[str, Any]]:
    """Tools in OpenAI's form; those that have it stay as they are."""
    return [_to_tool(one) if isinstance(one, BaseTool) else one for one in tools or ()]


def _to_tool(tool: BaseTool) -> dict[str, Any]:
    metadata = tool.metadata
    # the name as it is, brackets of generic models included: a call is looked up by it
    function: dict[str, Any] = {"name": metadata.get_name()}
    if metadata.description and not _says_nothing(metadata):
        function["description"] = metadata.description
    return {"type": "function", "function": {**function, "parameters": _parameters(tool)}}


def only_fill_models(tools: Sequence[Any]) -> bool:
    """Whether these are the tools of LlamaIndex's programs, which are made to be called.

    Programs do not say so when they stream.
    """
    functions = [one.real_fn for one in tools if isinstance(one, FunctionTool)]
    made = [getattr(one, "__qualname__", "").startswith("get_function_tool.") for one in functions]
    return bool(made) and all(made) and len(made) == len(tools)


def _says_nothing(metadata: ToolMetadata) -> bool:
    """Whether the description is the signature of the function that LlamaIndex fills models by."""
    return metadata.description.startswith(f"{metadata.name}(*args: Any, **kwargs: Any)")


def _parameters(tool: BaseTool) -> dict[str, Any]:
    kind = tool.metadata.fn_schema
    if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
        schema = tool.metadata.get_parameters_dict()
    elif kind.__module__ == _MADE_BY and isinstance(tool, FunctionTool):
        schema = resolve_schema(_annotated(kind, tool.real_fn)).json_schema
    else:
        schema = resolve_schema(kind).json_schema
    untitled: dict[str, Any] = without_annotations(schema, {"title": str})
    return untitled


@lru_cache(maxsize=256)  # a class is made for it, which is slow
def _annotated(kind: type[BaseModel], function: Callable[..., Any]) -> type[BaseModel]:
    """The arguments that LlamaIndex has read off a function, with the bounds it has left out."""
    hints = _hints(function)
    fields: dict[str, Any] = {}
    for name, field in kind.model_fields.items():
        described = Field(description=field.description) if field.description else None
        default = ... if field.is_required() else field.get_default(call_default_factory=True)
        fields[name] = (Annotated[hints.get(name, field.annotation), described], default)
    return create_model(kind.__name__, **fields)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of its parameters, but for names that only type checkers know."""
    inner = inspect.unwrap(function.func if isinstance(function, partial) else function)
    names = getattr(
        inner if hasattr(inner, "__globals__") else type(inner).__call__, "__globals__", {}
    )
    hints: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.annotation is not parameter.empty:
            alone = SimpleNamespace(__annotations__={name: parameter.annotation})
            with contextlib.suppress(NameError):
                hints |= typing.get_type_hints(alone, names, include_extras=True)
    return hints


def to_choice(choice: Any, *, is_required: bool) -> str | Mapping[str, Any]:
    """Which tool is to be called, in OpenAI's form, of what LlamaIndex's callers pass."""
    if choice is None:
        return "required" if is_required else "auto"
    if choice == "any":
        return "required"
    if isinstance(choice, str) and choice not in ("auto", "none", "required"):
        return {"type": "function", "function": {"name": choice}}
    named: str | Mapping[str, Any] = choice
    return named


def select_tools(response: ChatResponse, *, must_call: bool) -> list[ToolSelection]:
    """The calls of a response, also of one that is still being written."""
    message = response.message
    blocks = [one for one in message.blocks if isinstance(one, ToolCallBlock)]
    calls = [(one.tool_call_id, one.tool_name, one.tool_kwargs) for one in blocks]
    if not calls:
        told = message.additional_kwargs.get("tool_calls") or ()
        calls = [
            (one["id"], one["function"]["name"], one["function"]["arguments"])
            for one in other_calls(told, "message")
        ]
    if not calls and must_call:
        text = message.content or ""
        raise NoToolCall(f"the model called no tool, and said {text[:200]!r}", text=text)
    return [
        ToolSelection(tool_id=call_id or "", tool_name=name, tool_kwargs=_kwargs(arguments))
        for call_id, name, arguments in calls
    ]


def _kwargs(arguments: Mapping[str, Any] | str) -> dict[str, Any]:
    value = partial_value(arguments) if isinstance(arguments, str) else dict(arguments)
    return value if isinstance(value, dict) else {}
