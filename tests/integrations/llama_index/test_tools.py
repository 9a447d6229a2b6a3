"""Tools: what a model is told of them, and what becomes of calls."""

# no annotations as text: LlamaIndex does not resolve those of tools

import asyncio
import functools
import json
from collections.abc import Callable
from typing import Annotated, Any, Generic, TypeVar

import pytest
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, ToolCallBlock
from llama_index.core.program.function_program import get_function_tool
from llama_index.core.tools import FunctionTool, ToolMetadata
from pydantic import BaseModel, Field

from structspec import GrammarError, InvalidRequest, StructspecError
from structspec.integrations.llama_index import StructSpec
from structspec.integrations.llama_index_tools import NoToolCall, select_tools, to_tools
from tests.integrations.llama_index.scripted import Scripted, call, streamed_call

Digit = Annotated[int, Field(ge=0, le=9)]
T = TypeVar("T")


class Numbers(BaseModel):
    a: Digit
    b: Digit = 2


class Name(BaseModel):
    name: Annotated[str, Field(max_length=4)]


def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello {name}!"


ADD = FunctionTool.from_defaults(add, fn_schema=Numbers)
GREET = FunctionTool.from_defaults(greet, fn_schema=Name)
ASK = "What is it?"


def calls_of(llm: StructSpec, response: ChatResponse) -> list[tuple[str, dict[str, Any]]]:
    return [(one.tool_name, one.tool_kwargs) for one in llm.get_tool_calls_from_response(response)]


def with_tools(llm: StructSpec, **options: Any) -> list[ChatResponse]:
    """The answer, in each of four ways."""
    tools = [ADD, GREET]

    async def both() -> list[ChatResponse]:
        stream = await llm.astream_chat_with_tools(tools, ASK, **options)
        whole = await llm.achat_with_tools(tools, ASK, **options)
        return [whole, [one async for one in stream][-1]]

    whole = llm.chat_with_tools(tools, ASK, **options)
    return [whole, [*llm.stream_chat_with_tools(tools, ASK, **options)][-1], *asyncio.run(both())]


def test_a_required_call_is_made_and_valid_in_all_four_ways(toy: StructSpec) -> None:
    first, *others = with_tools(toy, tool_required=True)
    ((name, arguments),) = calls_of(toy, first)
    assert name in ("add", "greet")
    assert set(arguments) <= ({"a", "b"} if name == "add" else {"name"})
    for other in others:
        assert calls_of(toy, other) == [(name, arguments)]
        assert other.raw["finish_reason"] == "tool_calls"


def test_a_named_tool_is_the_one_that_is_called(toy: StructSpec) -> None:
    for choice in ("greet", {"type": "function", "function": {"name": "greet"}}):
        for response in with_tools(toy, tool_choice=choice):
            assert [name for name, _ in calls_of(toy, response)] == ["greet"]


def test_none_is_called_where_none_may_be(toy: StructSpec) -> None:
    for response in with_tools(toy, tool_choice="none", max_tokens=6):
        assert toy.get_tool_calls_from_response(response, error_on_no_tool_call=False) == []
        with pytest.raises(NoToolCall) as error:
            toy.get_tool_calls_from_response(response)
        assert error.value.text == response.message.content


def test_several_calls_come_only_where_they_may() -> None:
    both = {"content": None, "tool_calls": [], "finish_reason": "tool_calls"}
    for message in (call("add", a=1), call("greet", name="Bob")):
        both["tool_calls"] += message["tool_calls"]  # type: ignore[operator]
    scripted = Scripted(both)
    response = scripted.llm.chat_with_tools([ADD, GREET], ASK, allow_parallel_tool_calls=True)
    assert [name for name, _ in calls_of(scripted.llm, response)] == ["add", "greet"]
    assert scripted.bodies[0].get("parallel_tool_calls") is not False
    with pytest.raises(StructspecError, match="several tools"):
        scripted.llm.chat_with_tools([ADD, GREET], ASK)
    assert scripted.bodies[1]["parallel_tool_calls"] is False


@pytest.mark.parametrize("is_async", [False, True])
def test_predict_and_call_calls_a_tool_whatever_the_model_is_like(
    toy: StructSpec, is_async: bool
) -> None:
    for seed in range(4):
        if is_async:
            made = asyncio.run(toy.apredict_and_call([ADD, GREET], ASK, seed=seed))
        else:
            made = toy.predict_and_call([ADD, GREET], ASK, seed=seed)
        (output,) = made.sources
        assert not output.is_error and output.tool_name in ("add", "greet")
        assert made.response == output.content


def test_predict_and_call_may_be_answered_where_that_is_no_error() -> None:
    scripted = Scripted("No.")
    made = scripted.llm.predict_and_call([ADD], ASK, error_on_no_tool_call=False)
    assert (made.response, made.sources) == ("No.", [])
    assert scripted.bodies[0]["tool_choice"] == "auto"


def test_history_and_question_are_sent_and_stay_as_they_were() -> None:
    scripted = Scripted(call("add", a=1), system_prompt="Be kind.")
    history = [
        ChatMessage(role="user", content="Hi"),
        ChatMessage(role="assistant", content="Yes?"),
    ]
    before = [one.model_copy(deep=True) for one in history]
    scripted.llm.predict_and_call([ADD], ChatMessage(content=ASK), chat_history=history)
    assert history == before
    assert scripted.asked == [
        ("system", "Be kind."),
        ("user", "Hi"),
        ("assistant", "Yes?"),
        ("user", ASK),
    ]


def test_calls_and_results_go_back_in_the_servers_form() -> None:
    scripted = Scripted(call("add", a=1), "Three.")
    first = scripted.llm.chat_with_tools([ADD], ASK)
    (selection,) = scripted.llm.get_tool_calls_from_response(first)
    result = ChatMessage(
        role="tool", content="3", additional_kwargs={"tool_call_id": selection.tool_id}
    )
    scripted.llm.chat_with_tools(
        [ADD], chat_history=[ChatMessage(content=ASK), first.message, result]
    )
    _, made, told = scripted.bodies[1]["messages"]
    (sent,) = made["tool_calls"]
    assert sent["id"] == told["tool_call_id"] == selection.tool_id and len(sent["id"]) == 9
    assert json.loads(sent["function"]["arguments"]) == {"a": 1}


def test_arguments_are_seen_to_grow() -> None:
    pieces = ('{"na', 'me": "Bo', 'b"}')
    llm = Scripted(streamed_call("greet", *pieces)).llm
    seen = [
        calls_of(llm, one)[0][1]
        for one in llm.stream_chat_with_tools([GREET], ASK, tool_required=True)
    ]
    assert seen == [{}, {}, {"name": "Bo"}, {"name": "Bob"}, {"name": "Bob"}]


def test_a_call_has_one_id_from_its_beginning_on(toy: StructSpec) -> None:
    ids = {
        block.tool_call_id
        for response in toy.stream_chat_with_tools([ADD], ASK, tool_required=True)
        for block in response.message.blocks
        if isinstance(block, ToolCallBlock)
    }
    assert len(ids) == 1


# what a model is told


def test_tools_are_told_in_openais_form_without_titles() -> None:
    (tool,) = to_tools([ADD])
    function = tool["function"]
    assert function["name"] == "add" and "Add two numbers." in function["description"]
    number = {"type": "integer", "minimum": 0, "maximum": 9}
    assert function["parameters"]["properties"] == {"a": number, "b": {**number, "default": 2}}
    assert function["parameters"]["required"] == ["a"]
    assert to_tools([tool]) == [tool] and to_tools(None) == []


def test_bounds_and_descriptions_of_annotations_are_kept() -> None:
    def order(
        pieces: Annotated[int, Field(ge=1, le=9)],
        item: Annotated[str, "What to order."],
        days: Annotated[int, Field(le=5)] = 2,
    ) -> str:
        """Order something.

        Args:
            pieces (int): How many.
        """
        return f"{pieces} {item} {days}"

    (told,) = to_tools([FunctionTool.from_defaults(order)])
    assert told["function"]["parameters"]["properties"] == {
        "pieces": {"type": "integer", "minimum": 1, "maximum": 9, "description": "How many."},
        "item": {"type": "string", "description": "What to order."},
        "days": {"type": "integer", "maximum": 5, "default": 2},
    }
    assert told["function"]["parameters"]["required"] == ["pieces", "item"]


def test_annotations_are_read_wherever_they_can_be() -> None:
    Bounded = Annotated[int, Field(ge=0, le=9)]

    def half_known(a: Bounded) -> "OnlyForTypeCheckers":  # type: ignore[name-defined]  # noqa: F821
        return a

    def two(given: str, a: Bounded) -> int:
        return a

    class Adder:
        def __call__(self, a: Bounded) -> int:
            return a

    for function in (half_known, functools.partial(two, "x"), Adder()):
        tool = FunctionTool.from_defaults(function, name="f", description="x")  # type: ignore[arg-type]
        (told,) = to_tools([tool])
        bounded = {"type": "integer", "minimum": 0, "maximum": 9}
        assert told["function"]["parameters"]["properties"] == {"a": bounded}


def test_a_tool_without_a_schema_takes_what_llama_index_says() -> None:
    tool = FunctionTool.from_defaults(greet)
    tool._metadata = ToolMetadata(name="greet", description="x", fn_schema=None)
    (told,) = to_tools([tool])
    assert told["function"]["parameters"]["required"] == ["input"]


class Box(BaseModel, Generic[T]):
    value: T


def test_names_with_brackets_are_kept_and_found_again(toy: StructSpec) -> None:
    tool = get_function_tool(Box[bool])
    assert "[" in str(tool.metadata.name)
    made = toy.predict_and_call([tool], ASK)
    assert not made.sources[0].is_error and isinstance(made.sources[0].raw_output, Box)


def test_what_is_wrong_with_tools_is_said(toy: StructSpec) -> None:
    def of(tool: Any, **options: Any) -> Callable[[], Any]:
        return lambda: toy.chat([ChatMessage(content=ASK)], tools=[tool], **options)

    for ask, kind, told in (
        (of({"type": "web_search"}), InvalidRequest, r"tools\[0\]"),
        (of(ADD, tool_choice="sub"), InvalidRequest, "no tool 'sub'"),
        (of(ADD, regex="a"), InvalidRequest, "schema="),
        (of({"name": "a b", "parameters": {}}), GrammarError, "name"),
    ):
        with pytest.raises(kind, match=told):
            ask()


def test_calls_of_responses_of_others_are_read_too() -> None:
    body = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1'}}
    message = ChatMessage(role="assistant", additional_kwargs={"tool_calls": [body]})
    (one,) = select_tools(ChatResponse(message=message), must_call=True)
    assert (one.tool_id, one.tool_name, one.tool_kwargs) == ("1", "f", {})
