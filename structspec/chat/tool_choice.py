"""Which tools may be called, from `tools`, `tool_choice` and `parallel_tool_calls`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from structspec.chat.fields import refuse
from structspec.chat.formats import Wanted
from structspec.constraint import Envelope, Tools


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """What a request says about tools, checked; `choice` is "auto", "required" or a name."""

    tools: tuple[Mapping[str, Any], ...]
    choice: str
    parallel: bool
    is_named: bool = False

    def constrain(self, wanted: Wanted | None, envelope: Envelope) -> Wanted:
        """The grammar of calls and answers; a call that is required leaves no room for these."""
        response = None
        if self.choice == "auto" and wanted is not None:
            response = wanted.schema
            if response is None:
                raise refuse(
                    f"{wanted.param} and tools contradict each other, unless it is a JSON schema"
                    " or tool_choice is none",
                    wanted.param,
                )
        tools = Tools(
            self.tools,
            envelope=envelope,
            choice=self.choice,
            parallel=self.parallel,
            response=response,
        )
        return Wanted({"grammar": tools}, "tools")


def read_tools(
    tools: Sequence[Mapping[str, Any]] | None,
    choice: str | Mapping[str, Any] | None,
    parallel: bool | None,
) -> ToolChoice | None:
    """The tools that may be called; None where none may be, or there are none.

    Clients send `tool_choice` without tools, and empty lists of them: that means nothing.
    """
    if not tools or choice == "none":
        return None
    known = [_function(tool, f"tools[{index}]") for index, tool in enumerate(tools)]
    names = [*map(name_of, known)]
    if isinstance(choice, Mapping) and choice.get("type") == "allowed_tools":
        allowed, choice = _allowed(choice, names)
        known = [tool for tool in known if name_of(tool) in allowed]
    is_parallel = parallel is not False
    if choice is None or choice in ("auto", "required"):
        return ToolChoice(tuple(known), choice or "auto", is_parallel)
    name = _named(choice)
    if name not in names:
        raise refuse(f"tool_choice: there is no tool {name!r}", "tool_choice")
    named = tuple(tool for tool in known if name_of(tool) == name)
    # "auto" and the like may be names too: one tool that is required is that tool
    return ToolChoice(named, "required", False, is_named=True)


def _function(tool: Mapping[str, Any], param: str) -> dict[str, Any]:
    """One tool's function: chat has it in an object of its own, responses beside the type."""
    kind = tool.get("type", "function")
    if kind != "function":
        raise refuse(
            f"{param}: tools of type {kind!r} are not supported, only functions",
            f"{param}.type",
            "unsupported_parameter",
        )
    function = tool.get("function", tool)
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise refuse(f"{param} must be a function with a name", param)
    kept = ("name", "description", "parameters")
    known = {key: function[key] for key in kept if function.get(key) is not None}
    # in the form it came in: errors name places in it
    return {"type": "function", "function": known} if "function" in tool else known


def name_of(tool: Mapping[str, Any]) -> str:
    """The name of a tool in either form."""
    return str(tool.get("function", tool)["name"])


def _allowed(choice: Mapping[str, Any], names: Sequence[str]) -> tuple[set[str], str]:
    inner = choice.get("allowed_tools", choice)
    listed = inner.get("tools") if isinstance(inner, Mapping) else None
    if not isinstance(listed, list) or not listed:
        raise refuse("tool_choice: allowed_tools must list tools", "tool_choice")
    allowed = {_named(tool) for tool in listed}
    for name in sorted(allowed):
        if name not in names:
            raise refuse(f"tool_choice: there is no tool {name!r}", "tool_choice")
    mode = inner.get("mode", "auto")
    if mode not in ("auto", "required"):
        raise refuse(f"tool_choice: mode must be auto or required, not {mode!r}", "tool_choice")
    return allowed, mode


def _named(choice: Any) -> str:
    if isinstance(choice, Mapping) and choice.get("type", "function") == "function":
        function = choice.get("function", choice)
        name = function.get("name") if isinstance(function, Mapping) else None
        if isinstance(name, str):
            return name
    raise refuse(
        "tool_choice must be none, auto, required, a function's name as"
        f' {{"type": "function", "function": {{"name": …}}}}, or allowed_tools, not {choice!r}',
        "tool_choice",
    )
