"""What other integrations and LlamaIndex's own programs get wrong, each with what we do instead."""

from __future__ import annotations

import asyncio
import copy
import json
from typing import Any

import pytest
from llama_index.core.llms import ChatMessage
from llama_index.core.program import FunctionCallingProgram
from llama_index.core.program.function_program import get_function_tool
from llama_index.core.program.utils import FlexibleModel
from llama_index.core.prompts import ChatPromptTemplate, PromptTemplate
from llama_index.core.types import PydanticProgramMode
from pydantic import BaseModel

from structspec.integrations.llama_index import StructSpec
from tests.integrations.llama_index.classes import Flat
from tests.integrations.llama_index.scripted import Scripted, call, streamed, streamed_call

PROMPT = PromptTemplate("Who is it? {text}")
ADA = '{"name": "Ada", "age": 3}'
PIECES = ('{"name": "A', 'da", "age"', ": 3}")
SYSTEM = "Be kind."


def ask_in_four_ways(*says: Any, **fields: Any) -> list[tuple[Scripted, Any]]:
    """The prediction and its three siblings: who was asked, and the last that came."""

    async def last_of(llm: StructSpec) -> Any:
        return [one async for one in await llm.astream_structured_predict(Flat, PROMPT, text="x")]

    whole, pieces = says
    made = [Scripted(one, **fields) for one in (whole, whole, pieces, pieces)]
    one, two, three, four = (scripted.llm for scripted in made)
    values = [
        one.structured_predict(Flat, PROMPT, text="x"),
        asyncio.run(two.astructured_predict(Flat, PROMPT, text="x")),
        [*three.stream_structured_predict(Flat, PROMPT, text="x")][-1],
        asyncio.run(last_of(four))[-1],
    ]
    return [*zip(made, values, strict=True)]


def streamed_text(*pieces: str) -> Any:
    return streamed(*({"content": one} for one in pieces))


# 1: streams of LlamaIndex's look for calls in additional_kwargs alone


def test_calls_stand_in_blocks_and_in_additional_kwargs_also_while_they_are_streamed() -> None:
    program = FunctionCallingProgram.from_defaults(
        output_cls=Flat, prompt=PROMPT, llm=Scripted(streamed_call("Flat", *PIECES)).llm
    )
    *partial, last = program.stream_call(text="x")
    assert last == Flat(name="Ada", age=3)
    assert [one.name for one in partial if isinstance(one, FlexibleModel)][-1] == "Ada"
    llm = Scripted(call("Flat", name="Ada", age=3)).llm
    response = llm.chat_with_tools([get_function_tool(Flat)], "x", tool_required=True)
    (block,) = response.message.blocks
    (body,) = response.message.additional_kwargs["tool_calls"]
    assert (block.tool_call_id, block.tool_name) == (body["id"], body["function"]["name"])
    assert block.tool_kwargs == json.loads(body["function"]["arguments"])


# 2: streamed predictions go out without saying that the tool must be called


def test_no_prediction_leaves_it_open_whether_there_will_be_an_object() -> None:
    for scripted, value in ask_in_four_ways(ADA, streamed_text(*PIECES)):
        (body,) = scripted.bodies
        assert body["response_format"]["json_schema"]["schema"]["required"] == ["name", "age"]
        assert "tools" not in body
        assert value == Flat(name="Ada", age=3)


def test_a_program_that_streams_has_its_tool_called() -> None:
    scripted = Scripted(streamed_call("Flat", *PIECES))
    program = FunctionCallingProgram.from_defaults(output_cls=Flat, prompt=PROMPT, llm=scripted.llm)
    assert [*program.stream_call(text="x")][-1] == Flat(name="Ada", age=3)
    assert scripted.bodies[0]["tool_choice"] == "required"


# 3: asynchronous predictions lose the system prompt


def test_the_system_prompt_is_in_all_four_predictions() -> None:
    for scripted, _ in ask_in_four_ways(ADA, streamed_text(*PIECES), system_prompt=SYSTEM):
        assert scripted.asked[0] == ("system", SYSTEM)
        assert [role for role, _ in scripted.asked] == ["system", "user"]


@pytest.mark.parametrize("mode", [PydanticProgramMode.FUNCTION, PydanticProgramMode.LLM])
def test_the_system_prompt_is_in_programs_too(mode: PydanticProgramMode) -> None:
    says = call("Flat", name="Ada", age=3) if mode is PydanticProgramMode.FUNCTION else ADA
    for is_async in (False, True):
        scripted = Scripted(says, system_prompt=SYSTEM, pydantic_program_mode=mode)
        if is_async:
            asyncio.run(scripted.llm.astructured_predict(Flat, PROMPT, text="x"))
        else:
            scripted.llm.structured_predict(Flat, PROMPT, text="x")
        assert [role for role, _ in scripted.asked].count("system") == 1
        assert SYSTEM in scripted.asked[0][1]


# 4: programs change the prompt that they are given, and write the schema in doubled braces


@pytest.mark.parametrize("mode", ["default", "function", "llm"])
def test_a_prompt_stays_as_it_was(mode: str) -> None:
    prompt = PromptTemplate("Who is it? {text}")
    before = copy.deepcopy(prompt)
    says = call("Flat", name="Ada", age=3) if mode == "function" else ADA
    Scripted(says, pydantic_program_mode=mode).llm.structured_predict(Flat, prompt, text="x")
    assert prompt == before and prompt.output_parser is None


def test_the_schema_is_told_once_as_json() -> None:
    scripted, _ = ask_in_four_ways(ADA, streamed_text(*PIECES))[0]
    (_, text) = scripted.asked[-1]
    assert "{{" not in text and text.count('"properties"') == 1
    assert text.endswith("Who is it? x")


# 5: what is streamed is flexible until it is the object, and nested objects are dicts


class Pair(BaseModel):
    one: Flat
    other: Flat


def test_partial_objects_are_flexible_and_what_is_in_them_are_dicts() -> None:
    whole = '{"one": {"name": "A", "age": 1}, "other": {"name": "B", "age": 2}}'
    llm = Scripted(streamed_text(*whole)).llm
    *partial, last = llm.stream_structured_predict(Pair, PROMPT, text="x")
    assert last == Pair.model_validate_json(whole)
    assert all(isinstance(one, FlexibleModel) for one in partial)
    assert partial[0].model_dump() == {"one": None, "other": None}
    assert partial[-1].model_dump() == json.loads(whole)
    assert isinstance(partial[-1].one, dict)


# 6: nobody finds the flags that make an integration ask for structure


def test_without_any_flag_chat_and_calls_are_native() -> None:
    llm = Scripted("x").llm
    assert llm.metadata.is_chat_model and llm.metadata.is_function_calling_model
    assert StructSpec(engine=llm._engine, context_window=77).metadata.context_window == 77


def test_the_context_window_is_the_models(toy: StructSpec) -> None:
    assert toy.metadata.context_window == 2048
    assert toy.metadata.num_output == 1024
    assert StructSpec(engine=toy._engine, max_tokens=5).metadata.num_output == 5


# 7: what a tool is described by is the signature of a function that nobody knows


def test_a_model_without_docstring_is_described_by_its_fields_alone() -> None:
    class Bare(BaseModel):
        name: str

    for kind, description in ((Bare, None), (Flat, "A person.")):
        scripted = Scripted(call(kind.__name__, name="Ada", age=3))
        program = FunctionCallingProgram.from_defaults(
            output_cls=kind, prompt=PROMPT, llm=scripted.llm
        )
        program(text="x")
        (tool,) = scripted.bodies[0]["tools"]
        assert "*args" not in json.dumps(tool)
        assert tool["function"].get("description") == description


# 8: braces in what people say


def test_braces_in_messages_survive() -> None:
    said = 'A {name}, {{name}}, {}, {0}, {"a": {"b": 1}} and {'
    messages = [ChatMessage(role="system", content=said), ChatMessage(content=said)]
    scripted = Scripted(ADA)
    scripted.llm.as_structured_llm(Flat).chat(messages)
    assert scripted.asked[0] == ("system", said)
    assert scripted.asked[1][1].endswith(said)
    scripted = Scripted(ADA)
    prompt = ChatPromptTemplate(message_templates=messages)
    scripted.llm.structured_predict(Flat, prompt)
    assert scripted.asked[1][1].endswith(said)
    scripted = Scripted("x")
    scripted.llm.complete(said)
    assert scripted.asked == [("user", said)]
