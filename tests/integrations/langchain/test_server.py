"""ChatStructSpec against a server of ours: the same calls, answered elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from langchain_core.tools import tool
from pydantic import BaseModel, Field

from structspec.errors import InvalidRequest, ServerError
from structspec.integrations.langchain import ChatStructSpec

ASK = "Ada Lovelace was born in 1815."


class Person(BaseModel):
    """Somebody."""

    name: str = Field(max_length=20)
    born: int


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    command = [sys.executable, "-m", "structspec", "serve", "smollm2-135m", "--port", "0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stderr is not None
        told = ""
        for line in server.stderr:
            told += line
            if found := re.search(r"is at (http://\S+)", line):
                break
        else:
            raise RuntimeError(f"the server did not start:\n{told}")
        yield found[1]
        server.terminate()
        server.communicate(timeout=60)


@pytest.fixture
def remote(url: str) -> ChatStructSpec:
    return ChatStructSpec(base_url=url, temperature=0, max_tokens=60)


def test_answers_are_those_of_the_same_model_here(
    remote: ChatStructSpec, model: ChatStructSpec
) -> None:
    there, here = remote.invoke("Hello"), model.invoke("Hello")
    assert there.content == here.content
    assert there.usage_metadata["input_tokens"] == here.usage_metadata["input_tokens"]
    assert there.response_metadata == here.response_metadata


@pytest.mark.parametrize("mode", ["raw", "processed"])
def test_logprobs_are_those_of_the_same_model_here(
    remote: ChatStructSpec, model: ChatStructSpec, mode: str
) -> None:
    asked = {"logprobs": 2, "logprobs_mode": mode, "max_tokens": 5}
    here, there = (llm.invoke(ASK, **asked).response_metadata for llm in (model, remote))
    first, *rest = remote.stream(ASK, **asked)
    streamed = sum(rest, first).response_metadata
    assert len(there["logprobs"]["content"]) == 5
    for one in (there, streamed):
        for mine, other in zip(
            here["logprobs"]["content"], one["logprobs"]["content"], strict=True
        ):
            assert (mine["id"], mine["bytes"]) == (other["id"], other["bytes"])
            assert mine["logprob"] == pytest.approx(other["logprob"], abs=1e-3)
            best = [[top["token"] for top in told["top_logprobs"]] for told in (mine, other)]
            assert best[0] == best[1] and len(best[0]) <= 2


async def test_streams_come_in_pieces(remote: ChatStructSpec) -> None:
    """Of an answer that the server has not given before: what it has, it may write in one step."""
    asked = "What is the sea like at night?"
    chunks = [chunk async for chunk in remote.astream(asked)]
    assert len(chunks) > 3
    first, *rest = chunks
    whole = sum(rest, first)
    assert whole.text == (await remote.ainvoke(asked)).text
    assert whole.usage_metadata["output_tokens"] > 3


@pytest.mark.parametrize("method", ["json_schema", "function_calling", "json_mode"])
def test_values_are_valid(remote: ChatStructSpec, method: str) -> None:
    asked = remote.with_structured_output(Person, method=method)
    assert isinstance(asked.invoke(ASK), Person)
    partial = remote.with_structured_output(Person, method=method, stream_partial=True)
    *_, last = partial.stream(ASK)
    assert isinstance(last, Person)


async def test_tools_are_called_and_streamed(remote: ChatStructSpec) -> None:
    asked = remote.bind_tools([add], tool_choice="any", parallel_tool_calls=False)
    [call] = asked.invoke("Add 3 and 4.").tool_calls
    first, *rest = [chunk async for chunk in asked.astream("Add 3 and 4.")]
    [streamed] = sum(rest, first).tool_calls
    assert (call["name"], call["args"]) == (streamed["name"], streamed["args"])
    assert set(call["args"]) == {"a", "b"}


def test_a_batch_goes_over_one_client(remote: ChatStructSpec) -> None:
    values = remote.with_structured_output(Person).batch([ASK] * 5)
    assert len(values) == 5 and all(isinstance(value, Person) for value in values)


def test_what_a_server_cannot_do_is_said(remote: ChatStructSpec) -> None:
    with pytest.raises(InvalidRequest, match="custom_get_token_ids"):
        remote.get_num_tokens("hi")
    with pytest.raises(ServerError):
        ChatStructSpec(base_url="http://127.0.0.1:9", max_retries=0).invoke("hi")
