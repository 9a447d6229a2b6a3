"""Every way to ask for an object, for every shape of class: it is always a valid one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from llama_index.core.llms import ChatMessage
from llama_index.core.program.utils import FlexibleModel
from llama_index.core.prompts import PromptTemplate
from pydantic import BaseModel

from structspec import LLM
from structspec.integrations.llama_index import StructSpec
from tests.integrations.llama_index.classes import CLASSES, Aliased, Digits

PROMPT = PromptTemplate("Fill it in: {text}")
SAID = [ChatMessage(content="Fill it in.")]


def predict(llm: StructSpec, kind: type[BaseModel]) -> list[Any]:
    return [llm.structured_predict(kind, PROMPT, text="x")]


def stream(llm: StructSpec, kind: type[BaseModel]) -> list[Any]:
    return [*llm.stream_structured_predict(kind, PROMPT, text="x")]


def apredict(llm: StructSpec, kind: type[BaseModel]) -> list[Any]:
    return [asyncio.run(llm.astructured_predict(kind, PROMPT, text="x"))]


def astream(llm: StructSpec, kind: type[BaseModel]) -> list[Any]:
    async def read() -> list[Any]:
        return [one async for one in await llm.astream_structured_predict(kind, PROMPT, text="x")]

    return asyncio.run(read())


def as_llm(llm: StructSpec, kind: type[BaseModel]) -> list[Any]:
    return [llm.as_structured_llm(kind).chat(SAID).raw]


def as_llm_async(llm: StructSpec, kind: type[BaseModel]) -> list[Any]:
    return [asyncio.run(llm.as_structured_llm(kind).achat(SAID)).raw]


def as_llm_stream(llm: StructSpec, kind: type[BaseModel]) -> list[Any]:
    return [one.raw for one in llm.as_structured_llm(kind).stream_chat(SAID)]


def as_llm_astream(llm: StructSpec, kind: type[BaseModel]) -> list[Any]:
    async def read() -> list[Any]:
        responses = await llm.as_structured_llm(kind).astream_chat(SAID)
        return [one.raw async for one in responses]

    return asyncio.run(read())


def as_llm_complete(llm: StructSpec, kind: type[BaseModel]) -> list[Any]:
    return [llm.as_structured_llm(kind).complete("Fill it in.").raw]


WAYS = (
    *(predict, stream, apredict, astream),
    *(as_llm, as_llm_async, as_llm_stream, as_llm_astream, as_llm_complete),
)


@pytest.fixture(scope="module")
def predicted(toy_engine: LLM) -> Callable[[type[BaseModel]], Any]:
    """What the first way gives of a class; asked for once."""
    found: dict[type[BaseModel], Any] = {}

    def look(kind: type[BaseModel]) -> Any:
        if kind not in found:
            llm = StructSpec(engine=toy_engine, temperature=1, additional_kwargs={"seed": 3})
            (found[kind],) = predict(llm, kind)
        return found[kind]

    return look


@pytest.mark.parametrize("kind", CLASSES, ids=lambda one: one.__name__)
@pytest.mark.parametrize("way", WAYS, ids=lambda one: one.__name__)
def test_what_comes_last_is_a_valid_object_and_what_comes_before_is_flexible(
    toy: StructSpec,
    way: Callable[..., list[Any]],
    kind: type[BaseModel],
    predicted: Callable[[type[BaseModel]], Any],
) -> None:
    *partial, last = way(toy, kind)
    assert type(last) is kind
    assert kind.model_validate_json(last.model_dump_json(by_alias=True)) == last
    assert all(isinstance(one, FlexibleModel) for one in partial)
    if way in (apredict, stream, astream):  # the others have another prompt
        assert last == predicted(kind)


def test_partial_objects_have_the_fields_of_the_class(toy: StructSpec) -> None:
    for one in stream(toy, Aliased)[:-1]:
        assert set(one.model_dump()) == {"first_name"}
    for one in stream(toy, Digits)[:-1]:
        assert isinstance(one.model_dump()["root"], list)
