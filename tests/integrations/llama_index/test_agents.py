"""Agents of LlamaIndex's, their model's part written down: what is sent, and what comes of it."""

from typing import Any

import pytest
from llama_index.core.agent.workflow import AgentStream, FunctionAgent, ReActAgent, ToolCallResult
from llama_index.core.tools import FunctionTool

from tests.integrations.llama_index.classes import Flat
from tests.integrations.llama_index.running import run
from tests.integrations.llama_index.scripted import Scripted, call, streamed, streamed_call


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


ADD = FunctionTool.from_defaults(add)
ASK = "What is 3 + 4?"


async def events_of(agent: Any, kinds: Any, **options: Any) -> tuple[Any, list[Any]]:
    """What an agent says in the end, and what it tells on the way."""
    handler = agent.run(ASK, **options)
    told = [event async for event in handler.stream_events() if isinstance(event, kinds)]
    return await handler, told


@pytest.mark.parametrize("is_streamed", [True, False])
def test_a_function_agent_calls_its_tool_and_answers(is_streamed: bool) -> None:
    said = (call("add", a=3, b=4), "Seven.")
    pieces = (streamed_call("add", '{"a": 3, ', '"b": 4}'), streamed({"content": "Seven."}))
    scripted = Scripted(*(pieces if is_streamed else said))
    agent = FunctionAgent(
        tools=[ADD], llm=scripted.llm, system_prompt="Be exact.", streaming=is_streamed
    )
    output, results = run(events_of(agent, ToolCallResult))
    assert str(output) == "Seven."
    assert [one.tool_output.raw_output for one in results] == [7]
    first, second = scripted.bodies
    assert first["tool_choice"] == "auto" and len(first["tools"]) == 1
    roles = [one["role"] for one in second["messages"]]
    assert roles == ["system", "user", "assistant", "tool"]
    made, told = second["messages"][2:]
    assert made["tool_calls"][0]["id"] == told["tool_call_id"] and told["content"] == "7"


def test_a_function_agent_is_told_what_comes_as_it_comes() -> None:
    deltas = ({"reasoning_content": "Easy."}, {"content": "Sev"}, {"content": "en."})
    agent = FunctionAgent(tools=[ADD], llm=Scripted(streamed(*deltas)).llm)
    _, told = run(events_of(agent, AgentStream))
    assert [one.delta for one in told] == ["", "Sev", "en.", ""]
    assert [one.thinking_delta for one in told] == ["Easy.", None, None, None]
    assert told[-1].raw["usage"]["completion_tokens"] == 3


def test_a_function_agents_first_tool_can_be_chosen() -> None:
    says = (streamed_call("add", '{"a": 3, "b": 4}'), streamed({"content": "Seven."}))
    scripted = Scripted(*says)
    agent = FunctionAgent(tools=[ADD], llm=scripted.llm, initial_tool_choice="add")
    assert str(run(events_of(agent, ToolCallResult))[0]) == "Seven."
    assert scripted.bodies[0]["tool_choice"] == "required"
    assert scripted.bodies[1]["tool_choice"] == "auto"


def test_an_agents_answer_can_be_an_object() -> None:
    scripted = Scripted(streamed({"content": "Ada is 3."}), '{"name": "Ada", "age": 3}')
    agent = FunctionAgent(tools=[ADD], llm=scripted.llm, output_cls=Flat)
    output, _ = run(events_of(agent, ToolCallResult))
    assert output.structured_response == {"name": "Ada", "age": 3}
    assert output.get_pydantic_model(Flat) == Flat(name="Ada", age=3)
    assert "response_format" in scripted.bodies[1]


def test_a_react_agent_calls_its_tool_and_answers() -> None:
    says = (
        'Thought: I have to add.\nAction: add\nAction Input: {"a": 3, "b": 4}',
        "Thought: I can answer.\nAnswer: Seven.",
    )
    scripted = Scripted(*(streamed(*({"content": one} for one in text)) for text in says))
    output, results = run(events_of(ReActAgent(tools=[ADD], llm=scripted.llm), ToolCallResult))
    assert str(output) == "Seven."
    assert [one.tool_output.raw_output for one in results] == [7]
    assert all("tools" not in body for body in scripted.bodies)
    assert scripted.bodies[1]["messages"][-1]["content"] == "Observation: 7"
