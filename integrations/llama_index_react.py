"""What a ReActAgent can read, as a constraint: small models write something else, left to it.

tools = [FunctionTool.from_defaults(add)]
llm = StructSpec("smollm2-135m", additional_kwargs=react_options(tools))
agent = ReActAgent(tools=tools, llm=llm)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.tools.types import BaseTool

from structspec.constraint import StructuralTag
from structspec.integrations.llama_index_tools import to_tools
from structspec.options import GenerateOptions


def react_options(
    tools: Sequence[BaseTool], *, max_thought: int = 120, max_answer: int = 400
) -> GenerateOptions:
    """Options under which every output is a thought, and a call of a tool or an answer.

        Thought: I have to add.          Thought: I can answer.
        Action: add                      Answer: 7
        Action Input: {"a": 3, "b": 4}

    Arguments conform to the tools' schemas. A thought has so many characters at most, all in one
    line, as an answer has.
    """
    calls = [_call(tool["function"]) for tool in to_tools(tools)]
    answer = _sequence(_text("Answer: "), _line(max_answer))
    step = {"type": "or", "elements": [*calls, answer]}
    format = _sequence(_text("Thought: "), _line(max_thought), _text("\n"), step)
    return {"grammar": StructuralTag({"type": "structural_tag", "format": format})}


def _call(function: dict[str, Any]) -> dict[str, Any]:
    arguments = {"type": "json_schema", "json_schema": function["parameters"]}
    return _sequence(_text(f"Action: {function['name']}\nAction Input: "), arguments)


def _sequence(*elements: dict[str, Any]) -> dict[str, Any]:
    return {"type": "sequence", "elements": [*elements]}


def _text(value: str) -> dict[str, Any]:
    return {"type": "const_string", "value": value}


def _line(max_length: int) -> dict[str, Any]:
    # it begins with what can be seen, and no brackets: the agent's parser looks for these
    return {"type": "regex", "pattern": rf"[^\s(){{}}][^\n(){{}}]{{0,{max_length - 1}}}"}
