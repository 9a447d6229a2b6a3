"""What each SDK was seen to need of an answer, one field left out at a time: all of it is there.

Found by running the SDKs against a server that leaves out one thing: which call of which client
fails without it stands beside each rule.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.server.conftest import ASK, PERSON, Server, json_schema, schema_of

Json = dict[str, Any]
WEATHER = {"name": "get_weather", "parameters": schema_of(city={"type": "string", "maxLength": 9})}
TOOLS = [{"type": "function", "function": WEATHER}]
FORM = json_schema(PERSON)
ASKED: dict[str, Json] = {
    "text": {"max_tokens": 8},
    "object": {"response_format": FORM},
    "call": {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False},
    "named call": {
        "tools": TOOLS,
        "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
    },
    "call or object": {"tools": TOOLS, "response_format": FORM, "parallel_tool_calls": False},
    "cut short": {"response_format": FORM, "max_tokens": 2},
}


def messages_of(body: Json) -> list[Json]:
    return [choice["message"] for choice in body["choices"]]


def calls_in(body: Json) -> list[Json]:
    return [call for one in messages_of(body) for call in one.get("tool_calls", [])]


BODY_RULES: dict[str, Callable[[Json], bool]] = {
    "pydantic-ai: id and model are texts": lambda body: (
        isinstance(body["id"], str) and isinstance(body["model"], str)
    ),
    "pydantic-ai: object": lambda body: body["object"] == "chat.completion",
    "chat.parse, langchain: choices is a list that is not empty": lambda body: (
        isinstance(body["choices"], list) and len(body["choices"]) > 0
    ),
    "pydantic-ai: choices have an index": lambda body: (
        [choice["index"] for choice in body["choices"]] == [*range(len(body["choices"]))]
    ),
    "langchain: messages have a role": lambda body: all(
        one["role"] == "assistant" for one in messages_of(body)
    ),
    "all: a refusal would be an error": lambda body: all(
        one["refusal"] is None for one in messages_of(body)
    ),
    "chat.parse: calls say they are functions": lambda body: all(
        call["type"] == "function" for call in calls_in(body)
    ),
    "pydantic-ai: calls have an id": lambda body: all(call["id"] for call in calls_in(body)),
    "chat.parse, langchain, pydantic-ai: arguments are text": lambda body: all(
        isinstance(call["function"]["arguments"], str) for call in calls_in(body)
    ),
    "openai-agents: what was said is not empty": lambda body: all(
        one.get("tool_calls") or one["content"] for one in messages_of(body)
    ),
    "pydantic-ai: an ending that OpenAI has": lambda body: all(
        choice["finish_reason"] in ("stop", "length", "tool_calls") for choice in body["choices"]
    ),
    "all: no tool_calls rather than none of them": lambda body: all(
        "tool_calls" not in one or one["tool_calls"] for one in messages_of(body)
    ),
}


def of_choices(chunks: Sequence[Json]) -> list[Json]:
    return [choice for chunk in chunks for choice in chunk["choices"]]


def call_parts(chunks: Sequence[Json]) -> list[Json]:
    return [part for one in of_choices(chunks) for part in one["delta"].get("tool_calls", [])]


STREAM_RULES: dict[str, Callable[[Sequence[Json]], bool]] = {
    "chat.stream: every chunk says what it is": lambda chunks: all(
        chunk["object"] == "chat.completion.chunk" for chunk in chunks
    ),
    "chat.stream: choices have an index": lambda chunks: all(
        type(choice["index"]) is int for choice in of_choices(chunks)
    ),
    "chat.stream: parts of calls have an index": lambda chunks: all(
        type(part["index"]) is int for part in call_parts(chunks)
    ),
    "chat.stream: the first part of a call says it is a function": lambda chunks: all(
        part.get("type") == "function" for part in call_parts(chunks) if "id" in part
    ),
    "chat.stream, pydantic-ai: id and name once, since texts are joined": lambda chunks: all(
        number == 1
        for name in ("id", "name")
        for number in Counter(
            part["index"] for part in call_parts(chunks) if name in {**part, **part["function"]}
        ).values()
    ),
    "chat.stream: each choice ends, once, for its done events": lambda chunks: (
        sum(choice["finish_reason"] is not None for choice in of_choices(chunks)) == 1
    ),
}


@pytest.mark.parametrize("asked", list(ASKED))
def test_an_answer_has_all_that_clients_fail_without(asked: str, server: Server) -> None:
    body = server.chat(**ASKED[asked])
    assert [rule for rule, holds in BODY_RULES.items() if not holds(body)] == []
    chunks = server.stream(**ASKED[asked])
    assert [rule for rule, holds in STREAM_RULES.items() if not holds(chunks)] == []


def test_the_content_of_an_object_is_its_json_and_nothing_else(server: Server) -> None:
    """chat.parse, instructor and openai-agents fail on a fence, on prose, on marks of thinking."""
    [message] = messages_of(server.chat(response_format=FORM))
    assert set(json.loads(message["content"])) == {"name", "born"}


def test_the_first_chunks_are_of_the_choices_in_turn(server: Server) -> None:
    """chat.stream keeps choices in a list, and one that comes too early is an IndexError."""
    chunks = server.stream(n=3, max_tokens=4, seed=1, temperature=1)
    firsts = list(dict.fromkeys(choice["index"] for choice in of_choices(chunks)))
    assert firsts == [0, 1, 2]


def test_events_of_a_response_begin_before_what_is_in_them(server: Server) -> None:
    """responses.stream looks up items and parts by place, and compares ids."""
    text = {"format": {"type": "json_schema", "name": "person", "schema": PERSON}}
    events = server.stream("/v1/responses", input=ASK, text=text, temperature=0)
    kinds = [event["type"].removeprefix("response.") for event in events]
    places = [
        kinds.index(kind)
        for kind in (
            *("created", "output_item.added", "content_part.added", "output_text.delta"),
            *("output_text.done", "content_part.done", "output_item.done", "completed"),
        )
    ]
    assert places[0] == 0 and places == sorted(places) and places[-1] == len(events) - 1
    final = events[-1]["response"]
    assert {event["response"]["id"] for event in events if "response" in event} == {final["id"]}
    [item] = final["output"]
    assert {event["item_id"] for event in events if "item_id" in event} == {item["id"]}
    [part] = item["content"]
    assert (item["type"], part["type"], part["annotations"]) == ("message", "output_text", [])
    assert set(json.loads(part["text"])) == {"name", "born"}
