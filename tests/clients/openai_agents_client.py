"""openai-agents, with a tool and an output type together: python openai_agents_client.py URL."""

from __future__ import annotations

import asyncio
import sys

import openai
from agents import (
    Agent,
    FunctionTool,
    Model,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from agents.exceptions import MaxTurnsExceeded
from pydantic import BaseModel, Field

MODEL = "smollm2-135m"
ASK = "Ada Lovelace was born in 1815 in London."


class Person(BaseModel):
    name: str = Field(max_length=20)
    born: int


@function_tool
def get_year(event: str) -> str:
    """The year of an event."""
    return "1815"


async def run(url: str) -> None:
    client = openai.AsyncOpenAI(base_url=url, api_key="none", timeout=300)
    for kind in (OpenAIChatCompletionsModel, OpenAIResponsesModel):
        model = kind(model=MODEL, openai_client=client)
        for tools in ([], [get_year]):
            await call_or_answer(model, tools)
        await call_and_answer(model)


async def call_or_answer(model: Model, tools: list[FunctionTool]) -> None:
    """Left to itself the model may call or answer, and writes nothing else."""
    agent = person_agent(model, tools, tool_choice=None)
    kind = type(model).__name__
    try:
        result = await Runner.run(agent, ASK, max_turns=2)
    except MaxTurnsExceeded:  # it went on calling, each call a valid one
        assert tools
        print(f"ok   {kind} with a tool: called it to the end", flush=True)
        return
    assert isinstance(result.final_output, Person)
    print(f"ok   {kind}, {len(tools)} tools: {result.final_output!r}", flush=True)


async def call_and_answer(model: Model) -> None:
    """One conversation: a call that has to be made, its result, an answer of the output type."""
    called: list[str] = []

    @function_tool(is_enabled=lambda context, agent: not called)
    def find_year(event: str) -> str:
        """The year of an event."""
        called.append(event)
        return "1815"

    agent = person_agent(model, [find_year], tool_choice="required")
    result = await Runner.run(agent, ASK, max_turns=3)
    kinds = [item.type for item in result.new_items]
    assert kinds == ["tool_call_item", "tool_call_output_item", "message_output_item"]
    assert len(called) == 1 and isinstance(result.final_output, Person)
    print(f"ok   {type(model).__name__}, a call and then: {result.final_output!r}", flush=True)


def person_agent(model: Model, tools: list[FunctionTool], tool_choice: str | None) -> Agent:
    settings = ModelSettings(
        temperature=0, max_tokens=120, tool_choice=tool_choice, parallel_tool_calls=False
    )
    return Agent(
        name="biographer",
        instructions="Give the person.",
        model=model,
        output_type=Person,
        tools=tools,
        model_settings=settings,
    )


if __name__ == "__main__":
    set_tracing_disabled(True)
    asyncio.run(run(sys.argv[1]))
