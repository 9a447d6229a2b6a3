"""pydantic-ai with tool, native and prompted output: python pydantic_ai_client.py URL."""

from __future__ import annotations

import sys

from pydantic import BaseModel, Field
from pydantic_ai import Agent, NativeOutput, PromptedOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

MODEL = "smollm2-135m"
ASK = "Ada Lovelace was born in 1815 in London."


class Person(BaseModel):
    name: str = Field(max_length=20)
    born: int


def main() -> None:
    provider = OpenAIProvider(base_url=sys.argv[1], api_key="none")
    for kind in (OpenAIChatModel, OpenAIResponsesModel):
        model = kind(MODEL, provider=provider)
        for output in (ToolOutput(Person), NativeOutput(Person), PromptedOutput(Person)):
            if kind is OpenAIResponsesModel and isinstance(output, PromptedOutput):
                continue
            agent = Agent(model, output_type=output, retries=0)
            settings = {"temperature": 0.0, "max_tokens": 120, "parallel_tool_calls": False}
            if isinstance(output, PromptedOutput):  # json_object alone holds no schema
                settings["extra_body"] = {"schema_in_prompt": "always"}
            try:
                result = agent.run_sync(ASK, model_settings=settings)
            except Exception as error:
                if not isinstance(output, PromptedOutput):
                    raise
                print(f"     {kind.__name__} {type(output).__name__}: the model's own: {error}")
                continue
            assert isinstance(result.output, Person)
            print(f"ok   {kind.__name__} {type(output).__name__}: {result.output!r}", flush=True)


if __name__ == "__main__":
    main()
