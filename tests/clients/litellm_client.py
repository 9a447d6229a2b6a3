"""litellm's hosted_vllm provider: python litellm_client.py URL."""

from __future__ import annotations

import json
import os
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm
from pydantic import BaseModel, Field

ASK = [{"role": "user", "content": "Ada Lovelace was born in 1815 in London."}]


class Person(BaseModel):
    name: str = Field(max_length=20)
    born: int


def main() -> None:
    given = {
        "model": "hosted_vllm/smollm2-135m",
        "api_base": sys.argv[1],
        "api_key": "none",
        "messages": ASK,
        "temperature": 0,
    }
    answer = litellm.completion(**given, response_format=Person)
    print("ok   schema:", Person.model_validate_json(answer.choices[0].message.content))
    parameters = Person.model_json_schema()
    tool = {"type": "function", "function": {"name": "save", "parameters": parameters}}
    answer = litellm.completion(
        **given, tools=[tool], tool_choice="required", parallel_tool_calls=False
    )
    (call,) = answer.choices[0].message.tool_calls
    print("ok   tool:", Person.model_validate(json.loads(call.function.arguments)))
    pieces = litellm.completion(**given, response_format=Person, stream=True)
    text = "".join(piece.choices[0].delta.content or "" for piece in pieces)
    print("ok   stream:", Person.model_validate_json(text))


if __name__ == "__main__":
    main()
