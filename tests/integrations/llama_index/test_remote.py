"""The same over a server of structspec's: `base_url` in place of a model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from llama_index.core.llms import ChatMessage
from llama_index.core.program.function_program import get_function_tool
from llama_index.core.program.utils import FlexibleModel
from llama_index.core.prompts import PromptTemplate

from structspec import ServerError
from structspec.integrations.llama_index import StructSpec
from tests.integrations.llama_index.classes import Flat, Listed
from tests.server.toy import NAME, save_toy, toy_server

PROMPT = PromptTemplate("Fill it in: {text}")
ASK = [ChatMessage(content="Hi")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_toy(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module")
def remote(folder: Path) -> Iterator[StructSpec]:
    with toy_server(folder) as server:
        yield StructSpec(base_url=server.url, temperature=0, max_tokens=60)


@pytest.fixture(scope="module")
def local(folder: Path) -> StructSpec:
    return StructSpec(str(folder), temperature=0, max_tokens=60)


def test_a_server_says_which_model_it_has_and_how_long_a_context(remote: StructSpec) -> None:
    assert remote.metadata.model_name == NAME
    assert remote.metadata.context_window == 2048


def test_it_says_what_the_engine_here_would_say(remote: StructSpec, local: StructSpec) -> None:
    for llm in (remote, local):
        llm.chat(ASK, max_tokens=8)
    assert remote.chat(ASK, max_tokens=8).message == local.chat(ASK, max_tokens=8).message
    for kind in (Flat, Listed):
        assert remote.structured_predict(kind, PROMPT, text="x") == local.structured_predict(
            kind, PROMPT, text="x"
        )


def test_logprobs_are_those_of_the_engine_here(remote: StructSpec, local: StructSpec) -> None:
    asked = {"max_tokens": 5, "logprobs": 2}
    there, here = (llm.chat(ASK, **asked).logprobs for llm in (remote, local))
    assert len(there) == 5
    for one, other in zip(there, here, strict=True):
        assert [told.bytes for told in one] == [told.bytes for told in other]
        assert [told.logprob for told in one] == pytest.approx(
            [told.logprob for told in other], abs=1e-4
        )


def test_streams_and_event_loops_one_after_the_other(remote: StructSpec) -> None:
    async def ask() -> list[object]:
        stream = await remote.astream_structured_predict(Flat, PROMPT, text="x")
        objects = [one async for one in stream]
        return [*objects, await remote.astructured_predict(Flat, PROMPT, text="x")]

    whole = remote.structured_predict(Flat, PROMPT, text="x")
    *partial, last = remote.stream_structured_predict(Flat, PROMPT, text="x")
    for *awaited, streamed, predicted in (asyncio.run(ask()), asyncio.run(ask())):
        assert streamed == predicted == last == whole
        assert all(isinstance(one, FlexibleModel) for one in (*awaited, *partial))


def test_calls_are_streamed_as_they_are_written(remote: StructSpec, local: StructSpec) -> None:
    tool = get_function_tool(Flat)
    *partial, last = remote.stream_chat_with_tools([tool], "Who?", tool_required=True)
    (call,) = remote.get_tool_calls_from_response(last)
    (same,) = local.get_tool_calls_from_response(
        local.chat_with_tools([tool], "Who?", tool_required=True)
    )
    assert (call.tool_name, call.tool_kwargs) == (same.tool_name, same.tool_kwargs)
    assert len(partial) > 1
    assert partial[0].message.additional_kwargs["tool_calls"][0]["function"]["name"] == "Flat"
    assert last.raw["usage"]["completion_tokens"] > 0


def test_a_server_that_is_not_there_is_a_typed_error() -> None:
    with pytest.raises(ServerError, match="no server at"):
        StructSpec(base_url="http://127.0.0.1:9").chat(ASK)
