"""pydantic-ai with structspec's provider: python pydantic_ai_client.py URL.

Tool, native and prompted output, streams, and tools together with an output type.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from pydantic import BaseModel, Field
from pydantic_ai import Agent, NativeOutput, PromptedOutput, RunContext, ToolOutput, UsageLimits
from pydantic_ai.exceptions import UnexpectedModelBehavior, UsageLimitExceeded
from pydantic_ai.messages import ToolCallPart, ToolReturnPart
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from structspec.integrations.pydantic_ai import StructSpecProvider

MODEL = "smollm2-135m"
ASK = "Ada Lovelace was born in 1815 in London."
SETTINGS: dict[str, Any] = {"temperature": 0.0, "max_tokens": 120, "parallel_tool_calls": False}
KINDS = (OpenAIChatModel, OpenAIResponsesModel)
Check = Callable[[str], Coroutine[Any, Any, None]]
CHECKS: list[Check] = []


class Person(BaseModel):
    name: str = Field(min_length=2, max_length=20)
    born: int = Field(ge=1000, le=2100)


def check(function: Check) -> Check:
    CHECKS.append(function)
    return function


@check
async def a_plain_output_type_is_held_by_the_grammar(url: str) -> None:
    for kind in KINDS:
        agent = Agent(kind(MODEL, provider=StructSpecProvider(url)), output_type=Person, retries=0)
        result = await agent.run(ASK, model_settings=SETTINGS)
        assert isinstance(result.output, Person) and result.usage.requests == 1
        assert not any(isinstance(part, ToolCallPart) for part in result.all_messages()[-1].parts)


@check
async def a_url_without_a_path_is_that_of_the_api(url: str) -> None:
    provider = StructSpecProvider(url.removesuffix("/v1"))
    assert provider.base_url.rstrip("/") == url.rstrip("/")


@check
async def tool_and_native_output_are_valid_at_once_with_any_provider(url: str) -> None:
    for provider in (StructSpecProvider(url), OpenAIProvider(base_url=url, api_key="none")):
        for kind in KINDS:
            for form in (ToolOutput, NativeOutput):
                agent = Agent(kind(MODEL, provider=provider), output_type=form(Person), retries=0)
                result = await agent.run(ASK, model_settings=SETTINGS)
                assert isinstance(result.output, Person)


@check
async def prompted_output_is_an_object_whose_keys_are_up_to_the_model(url: str) -> None:
    model = OpenAIChatModel(MODEL, provider=StructSpecProvider(url))
    agent = Agent(model, output_type=PromptedOutput(Person), retries=0)
    try:
        result = await agent.run(ASK, model_settings=SETTINGS)
    except UnexpectedModelBehavior as error:  # the request holds no schema, only a prompt does
        print(f"     the model's own: {error}")
    else:
        assert isinstance(result.output, Person)


@check
async def a_stream_ends_in_what_a_whole_answer_is(url: str) -> None:
    agent = Agent(OpenAIChatModel(MODEL, provider=StructSpecProvider(url)), output_type=Person)
    whole = await agent.run(ASK, model_settings=SETTINGS)
    async with agent.run_stream(ASK, model_settings=SETTINGS) as stream:
        parts = [part async for part in stream.stream_output(debounce_by=None)]
    assert parts and parts[-1] == whole.output
    assert stream.usage.output_tokens == whole.usage.output_tokens


@check
async def a_tool_is_called_and_its_result_answered_in_the_output_type(url: str) -> None:
    for kind in KINDS:
        asked: list[int] = []
        agent = Agent(kind(MODEL, provider=StructSpecProvider(url)), output_type=Person, retries=0)

        @agent.tool_plain
        def look_up(person_id: int) -> str:
            """A person by number."""
            asked.append(person_id)  # noqa: B023 - called before the next turn of the loop
            return ASK

        def settings(context: RunContext[None]) -> dict[str, Any]:
            """A call, then an answer: left to itself a small model goes on calling."""
            return {**SETTINGS, "tool_choice": ["look_up"] if context.run_step == 1 else "none"}

        result = await agent.run("Who is person number 7?", model_settings=settings)
        told = [part for message in result.all_messages() for part in message.parts]
        assert asked and any(isinstance(part, ToolReturnPart) for part in told)
        assert isinstance(result.output, Person) and result.usage.requests == 2


@check
async def left_to_itself_the_model_calls_or_answers_and_never_writes_anything_else(
    url: str,
) -> None:
    agent = Agent(OpenAIChatModel(MODEL, provider=StructSpecProvider(url)), output_type=Person)

    @agent.tool_plain
    def look_up(person_id: int) -> str:
        """A person by number."""
        return ASK

    limits = UsageLimits(request_limit=2)
    try:
        result = await agent.run(ASK, model_settings=SETTINGS, usage_limits=limits)
    except UsageLimitExceeded:  # both were calls with valid arguments
        print("     it called the tool each time")
    else:
        assert isinstance(result.output, Person)


def main() -> None:
    for function in CHECKS:
        asyncio.run(function(sys.argv[1]))
        print(f"ok   {function.__name__}", flush=True)


if __name__ == "__main__":
    main()
