"""Turns that a server takes: its deltas of text, reasoning and calls are told as they come."""

from __future__ import annotations

import json
from typing import Any

import pytest

from structspec import ServerError
from structspec.call_reader import AnswerText, ArgumentsText, CallBegins
from structspec.chat.events import ReasoningText
from structspec.chat.turns import Said, make_turn, stream, take
from tests.chat.test_turns import ASK, TOOLS
from tests.client.fakes import Blocking, Fake, Lines

CITY = '{"city": "Ur"}'


def lines(*deltas: dict[str, Any], reason: str = "tool_calls") -> Lines:
    chunks = [{"choices": [{"delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({"choices": [{"delta": {}, "finish_reason": reason}]})
    chunks.append({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}})
    return Lines("".join(f"data: {json.dumps(one)}\n\n" for one in chunks) + "data: [DONE]\n\n")


def call(index: int | None = None, **function: str) -> dict[str, Any]:
    place = {} if index is None else {"index": index}
    return {"tool_calls": [{**place, "function": function}]}


def heard(says: Lines) -> list[Any]:
    fake = Fake("vllm", says)
    client = Blocking(fake).client  # held: what nobody holds is closed
    runner = client._service
    events = list(stream(runner, make_turn(runner, ASK, {}, TOOLS)))
    assert fake.body["stream"] is True and len(fake.body["tools"]) == 2
    return events


def test_text_reasoning_and_calls_are_told_in_the_servers_order() -> None:
    *events, said = heard(
        lines(
            {"reasoning_content": "Hm."},
            {"content": "Let me "},
            {"content": "look."},
            call(0, name="weather", arguments=""),
            call(0, arguments='{"city": '),
            call(0, arguments='"Ur"}'),
            call(1, name="news", arguments=CITY),
        )
    )
    assert events == [
        ReasoningText("Hm."),
        AnswerText("Let me "),
        AnswerText("look."),
        CallBegins(0, "weather"),
        ArgumentsText(0, '{"city": '),
        ArgumentsText(0, '"Ur"}'),
        CallBegins(1, "news"),
        ArgumentsText(1, CITY),
    ]
    assert isinstance(said, Said) and said.text == "Let me look."
    assert [(one.name, one.arguments) for one in said.calls] == [
        ("weather", {"city": "Ur"}),
        ("news", {"city": "Ur"}),
    ]
    assert said.generation.usage.completion_tokens == 3
    assert said.generation.reasoning == "Hm."


def test_names_that_are_repeated_and_places_that_are_left_out_make_no_further_call() -> None:
    repeated = lines(call(0, name="news", arguments="{"), call(0, name="news", arguments=CITY[1:]))
    unplaced = lines(call(name="news", arguments="{"), call(arguments=CITY[1:]))
    for says in (repeated, unplaced):
        *events, said = heard(says)
        assert events == [
            CallBegins(0, "news"),
            ArgumentsText(0, "{"),
            ArgumentsText(0, CITY[1:]),
        ]
        assert [one.text for one in said.calls] == [CITY]


def test_a_call_without_a_name_is_the_servers_fault() -> None:
    with pytest.raises(ServerError, match="cannot be read"):
        heard(lines(call(0, arguments="{}")))


def test_an_answer_that_comes_whole_is_the_same() -> None:
    message = {
        "content": "Let me look.",
        "tool_calls": [{"function": {"name": "news", "arguments": CITY}}],
        "finish_reason": "tool_calls",
    }
    client = Blocking(Fake("vllm", message)).client
    said = take(client._service, make_turn(client._service, ASK, {}, TOOLS))
    assert (said.text, [one.name for one in said.calls]) == ("Let me look.", ["news"])
