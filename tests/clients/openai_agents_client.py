"""openai-agents, with a tool and an output type together: python openai_agents_client.py URL."""

from __future__ import annotations

import asyncio
import sys

import openai
from agents import (
    Agent,
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


class Person(BaseModel):
    name: str = Field(max_length=20)
    born: int


@function_tool
def get_year(event: str) -> str:
    """The year of an event."""
    return "1815"


async def run(url: str) -> None:
    client = openai.AsyncOpenAI(base_url=url, api_key="none", timeout=120)
    for kind in (OpenAIChatCompletionsModel, OpenAIResponsesModel):
        for tools in ([], [get_year]):
            agent = Agent(
                name="biographer",
                instructions="Give the person.",
                model=kind(model=MODEL, openai_client=client),
                output_type=Person,
                tools=tools,
                model_settings=ModelSettings(temperature=0, max_tokens=120),
            )
            asked = "Ada Lovelace was born in 1815 in London."
            try:
                result = await Runner.run(agent, asked, max_turns=3)
            except MaxTurnsExceeded:  # it went on calling, each call a valid one
                assert tools
                print(f"ok   {kind.__name__} with a tool: called it to the end")
                continue
            assert isinstance(result.final_output, Person)
            print(f"ok   {kind.__name__}, {len(tools)} tools: {result.final_output!r}", flush=True)


if __name__ == "__main__":
    set_tracing_disabled(True)
    asyncio.run(run(sys.argv[1]))
