"""Agents of LangChain and LangGraph on the real model: tools, answers, and both together."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import wrap_model_call
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from pydantic import BaseModel, Field

from structspec.errors import InvalidRequest
from structspec.integrations.langchain import ChatStructSpec


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def look_up(word: str) -> str:
    """Look up a word in the dictionary."""
    return f"{word}: a word"


class Answer(BaseModel):
    """The answer."""

    number: int = Field(ge=0, le=99)


class Asked(BaseCallbackHandler):
    """Remembers what the model was asked with."""

    def __init__(self) -> None:
        self.with_: list[dict[str, Any]] = []

    def on_chat_model_start(self, *args: Any, **kwargs: Any) -> None:
        self.with_.append(kwargs["invocation_params"])


def test_an_agent_with_a_response_format_has_the_model_held_to_it(model: ChatStructSpec) -> None:
    asked = Asked()
    agent = create_agent(model, response_format=Answer)
    said = agent.invoke({"messages": [("user", "3 + 4?")]}, {"callbacks": [asked]})
    assert isinstance(said["structured_response"], Answer)
    [params] = asked.with_
    assert params["response_format"]["json_schema"]["name"] == "Answer"
    assert not params["tools"]  # the schema is no tool: LangChain has taken its provider strategy


@pytest.mark.parametrize("strategy", [ProviderStrategy, ToolStrategy])
def test_both_strategies_give_the_answer(model: ChatStructSpec, strategy: Any) -> None:
    agent = create_agent(model, response_format=strategy(Answer))
    said = agent.invoke({"messages": [("user", "3 + 4?")]})
    assert isinstance(said["structured_response"], Answer)


@wrap_model_call
def answer_after_a_call(request: Any, handler: Any) -> Any:
    """SmolLM2 calls its tools for ever where it may."""
    is_called = isinstance(request.messages[-1], ToolMessage)
    settings = {"tool_choice": "none" if is_called else "auto"}
    return handler(request.override(model_settings=settings))


def test_an_agent_may_call_tools_before_its_structured_answer(model: ChatStructSpec) -> None:
    agent = create_agent(model, [add], response_format=Answer, middleware=[answer_after_a_call])
    said = agent.invoke({"messages": [("user", "What is 30 + 12?")]})
    assert isinstance(said["structured_response"], Answer)
    _, call, result, answer = said["messages"]
    arguments = call.tool_calls[0]["args"]
    assert result.content == str(arguments["a"] + arguments["b"])
    assert Answer.model_validate_json(answer.text) == said["structured_response"]


async def test_a_graph_of_a_model_and_its_tools_goes_round(model: ChatStructSpec) -> None:
    calling = model.bind_tools([add, look_up], tool_choice="add")
    telling = model.bind_tools([add, look_up], tool_choice="none")

    async def ask(state: MessagesState) -> dict[str, Any]:
        is_called = isinstance(state["messages"][-1], ToolMessage)
        return {"messages": [await (telling if is_called else calling).ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_node("tools", ToolNode([add, look_up]))
    graph.add_edge(START, "ask")
    graph.add_conditional_edges("ask", tools_condition, {"tools": "tools", END: END})
    graph.add_edge("tools", "ask")
    said = await graph.compile().ainvoke({"messages": [HumanMessage("What is 3 plus 4?")]})
    _, call, result, answer = said["messages"]
    assert call.tool_calls[0]["name"] == "add"
    arguments = call.tool_calls[0]["args"]
    assert result.content == str(arguments["a"] + arguments["b"])
    assert answer.text and not answer.tool_calls


class Sum(BaseModel):
    """Add two numbers."""

    a: int
    b: int


TOOLS = {
    "tool": add,
    "function": add.func,
    "model": Sum,
    "dict": {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
}


@pytest.mark.parametrize("kind", TOOLS)
def test_all_kinds_of_tools_can_be_called(model: ChatStructSpec, kind: str) -> None:
    message = model.bind_tools([TOOLS[kind]], tool_choice="any").invoke("Add 3 and 4.")
    [call, *_] = message.tool_calls
    assert call["name"] == ("Sum" if kind == "model" else "add")
    assert {key: type(value) for key, value in call["args"].items()} == {"a": int, "b": int}
    assert message.response_metadata["finish_reason"] == "tool_calls"


@pytest.mark.parametrize(
    "choice, names",
    [
        ("any", {"add", "look_up"}),
        ("required", {"add", "look_up"}),
        (True, {"add", "look_up"}),
        ("look_up", {"look_up"}),
        ({"type": "function", "function": {"name": "look_up"}}, {"look_up"}),
        ("none", set()),
        (False, set()),
    ],
    ids=str,
)
def test_the_choice_of_a_tool_is_kept(model: ChatStructSpec, choice: Any, names: set[str]) -> None:
    asked = model.bind_tools([add, look_up], tool_choice=choice, parallel_tool_calls=False)
    calls = asked.invoke("What does 'cat' mean?").tool_calls
    assert len(calls) == min(1, len(names))
    assert {call["name"] for call in calls} <= names


def test_a_call_is_streamed_as_it_is_written(model: ChatStructSpec) -> None:
    slow = model.model_copy(update={"speculative": False})
    asked = slow.bind_tools([look_up], tool_choice="look_up")
    chunks = [*asked.stream("What does 'mouse' mean?")]
    pieces = [piece for chunk in chunks for piece in chunk.tool_call_chunks]
    assert len(pieces) > 2
    assert [piece["name"] for piece in pieces if piece["name"]] == ["look_up"]
    first, *rest = chunks
    whole: AIMessage = sum(rest, first)
    assert whole.tool_calls == [whole.tool_calls[0]] and "word" in whole.tool_calls[0]["args"]


def test_a_tool_there_is_not_cannot_be_chosen(model: ChatStructSpec) -> None:
    with pytest.raises(InvalidRequest, match="there is no tool 'subtract', there are add"):
        model.bind_tools([add], tool_choice="subtract")


def test_strict_tools_want_all_their_arguments(model: ChatStructSpec) -> None:
    class Loose(BaseModel):
        """Anything."""

        a: int
        b: int = 2

    asked = model.bind_tools([Loose], tool_choice="any", strict=True)
    assert set(asked.invoke("Loose(1, 2)").tool_calls[0]["args"]) == {"a", "b"}
