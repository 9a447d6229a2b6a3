"""Turns with tools on a model of random weights: whole and streamed, blocking and awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, Field

from structspec import LLM, InvalidRequest
from structspec.call_reader import AnswerText, ArgumentsText, CallBegins
from structspec.chat.turns import Said, Turn, make_turn, stream, stream_async, take, take_async
from structspec.tool_calls import ToolCall
from tests.server.toy import save_toy

ASK = [{"role": "user", "content": "What is the weather?"}]


class Point(BaseModel):
    x: int = Field(ge=0, le=9)


def tool(name: str) -> dict[str, Any]:
    city = {"type": "string", "maxLength": 5}
    parameters = {"type": "object", "properties": {"city": city}, "required": ["city"]}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [tool("weather"), tool("news")]
TURNS: dict[str, dict[str, Any]] = {
    "text": {"options": {"max_tokens": 12}},
    "schema": {"options": {"schema": Point}},
    "any_call": {"tools": TOOLS, "tool_choice": "required", "parallel": False},
    "named_call": {
        "tools": TOOLS,
        "tool_choice": {"type": "function", "function": {"name": "news"}},
        "parallel": False,
    },
    "call_or_text": {"tools": TOOLS, "parallel": False, "options": {"max_tokens": 24}},
    "call_or_object": {"tools": TOOLS, "parallel": False, "options": {"schema": Point}},
    "no_call": {"tools": TOOLS, "tool_choice": "none", "options": {"max_tokens": 12}},
}


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with LLM(save_toy(tmp_path_factory.mktemp("toy"))) as llm:
        yield llm._service


def turn_of(runner: Any, kind: str, seed: int = 0) -> Turn:
    given = dict(TURNS[kind])
    options = {"temperature": 1, "seed": seed, "max_tokens": 90, **given.pop("options", {})}
    return make_turn(runner, ASK, options, **given)  # type: ignore[arg-type]


def heard(events: list[Any]) -> tuple[str, list[tuple[str, str]]]:
    """The text and the calls that events tell of."""
    text, calls = "", []
    for event in events:
        match event:
            case AnswerText():
                text += event.text
            case CallBegins():
                assert event.index == len(calls)
                calls.append((event.name, ""))
            case ArgumentsText():
                name, arguments = calls[event.index]
                calls[event.index] = (name, arguments + event.text)
    return text, calls


def as_said(said: Said) -> tuple[str, list[tuple[str, str]]]:
    return said.text, [(call.name, call.text) for call in said.calls]


async def read_async(runner: Any, turn: Turn) -> list[Any]:
    return [event async for event in stream_async(runner, turn)]


@pytest.mark.parametrize("kind", TURNS)
def test_events_add_up_to_what_is_said_however_it_is_asked_for(runner: Any, kind: str) -> None:
    said = take(runner, turn_of(runner, kind))
    *events, last = stream(runner, turn_of(runner, kind))
    *awaited, last_awaited = asyncio.run(read_async(runner, turn_of(runner, kind)))
    said_awaited = asyncio.run(take_async(runner, turn_of(runner, kind)))
    assert heard(events) == heard(awaited) == as_said(said)
    assert as_said(last) == as_said(last_awaited) == as_said(said_awaited) == as_said(said)
    assert last.value == last_awaited.value == said_awaited.value == said.value


def test_answers_are_values_and_calls_are_parsed(runner: Any) -> None:
    assert isinstance(take(runner, turn_of(runner, "schema")).value, Point)
    said = take(runner, turn_of(runner, "any_call"))
    [call] = said.calls
    assert isinstance(call, ToolCall) and call.name in ("weather", "news")
    assert set(call.arguments) == {"city"} and said.value is None and said.text == ""
    assert all(one.name == "news" for one in take(runner, turn_of(runner, "named_call")).calls)
    assert not take(runner, turn_of(runner, "no_call")).calls


def test_an_answer_beside_tools_is_held_to_its_schema(runner: Any) -> None:
    answers = [take(runner, turn_of(runner, "call_or_object", seed)) for seed in range(8)]
    values = [said.value for said in answers if not said.calls]
    assert values and all(isinstance(value, Point) for value in values)
    assert len(values) < len(answers)  # some call


def test_only_schemas_go_with_tools(runner: Any) -> None:
    with pytest.raises(InvalidRequest, match="schema="):
        make_turn(runner, ASK, {"regex": "a"}, TOOLS)


def test_the_tools_and_the_schema_are_told_and_messages_stay_as_they_were(runner: Any) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    turn = make_turn(runner, messages, {"schema": Point}, TOOLS)
    told = str(turn.prompt)
    assert "weather" in told and "news" in told and '"x"' in told
    assert messages == [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize("tools", [None, TOOLS])
def test_earlier_calls_are_told_in_words_where_the_template_knows_none(
    runner: Any, tools: Any
) -> None:
    function = {"name": "weather", "arguments": {"city": "Ur"}}
    call = {"id": "1", "type": "function", "function": function}
    history = [
        *ASK,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "sunny", "tool_call_id": "1"},
    ]
    turn = make_turn(runner, history, {}, tools)
    messages, template_tools = turn.prompt
    assert template_tools is None and turn.messages == history
    assert [one["role"] for one in messages if one["role"] != "system"] == [
        *("user", "assistant", "user")
    ]
    assert '"city": "Ur"' in messages[-2]["content"] and "sunny" in messages[-1]["content"]


@pytest.mark.parametrize("is_begun", [True, False], ids=["begun", "unread"])
def test_leaving_a_stream_cancels_its_request(runner: Any, is_begun: bool) -> None:
    turn = make_turn(runner, ASK, {"max_tokens": 2000, "ignore_eos": True})
    events = stream(runner, turn)
    if is_begun:
        next(events)
    events.close()
    take(runner, turn_of(runner, "schema"))  # by then the engine has heard of it
    assert runner.metrics().num_requests_running == 0
