"""LlamaIndex: a ReAct agent whose format is a mask, so that a small model cannot miss it."""

import asyncio
from typing import Annotated

from llama_index.core.agent.workflow import ReActAgent, ToolCallResult
from llama_index.core.tools import FunctionTool
from pydantic import Field

from structspec.integrations.llama_index import StructSpec
from structspec.integrations.llama_index_react import react_options

Small = Annotated[int, Field(ge=0, le=99)]  # bounds hold: arguments are written under a mask


def add(a: Small, b: Small) -> int:
    """Add two numbers."""
    return a + b


TOOLS = [FunctionTool.from_defaults(add)]


async def main(llm: StructSpec) -> None:
    agent = ReActAgent(tools=TOOLS, llm=llm, early_stopping_method="generate")
    handler = agent.run("What is 3 + 4?", max_iterations=3)
    async for event in handler.stream_events():
        if isinstance(event, ToolCallResult):
            print("called", event.tool_name, event.tool_kwargs, "->", event.tool_output.content)
    print(await handler)


if __name__ == "__main__":
    options = react_options(TOOLS, max_thought=40, max_answer=60)
    asyncio.run(main(StructSpec("smollm2-135m", temperature=0, additional_kwargs=dict(options))))
