"""Calls read while they are written say what the finished text says, however it was cut."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structspec import JsonSchema, Tools
from structspec.call_reader import AnswerText, ArgumentsText, CallBegins, CallReader
from structspec.grammars.envelopes import ENVELOPES
from structspec.grammars.tool_calls import finished_calls

NAMES = ("get", "get_weather", "später")
TOOLS = [{"name": name, "parameters": {"type": "object"}} for name in NAMES]
ANSWER = JsonSchema({"type": "object", "properties": {"name": {"type": "string"}}})
FREE = ("", "Let me see. ", "I say {", 'a "quoted" {"name" of ', "<tool", "[TOOL_ ", "日本 ")
ARGUMENTS = (
    {},
    {"city": "Rome"},
    {"a": [1, {"b": "}"}], "c": '"]}\\'},
    {"日": "{", "nested": {"x": [[]]}},
)


def write(envelope: str, calls: Sequence[tuple[str, dict]], before: str = "") -> str:
    """A text that makes these calls, as the envelope's grammar writes them."""
    fixed = ENVELOPES[envelope]
    texts = [
        fixed.before_name
        + (json.dumps(name, ensure_ascii=False)[1:-1] if fixed.is_json_name else name)
        + fixed.before_arguments
        + json.dumps(arguments, ensure_ascii=False)
        + fixed.after_arguments
        for name, arguments in calls
    ]
    return before + fixed.opening + (fixed.separator or "").join(texts) + fixed.closing


def read(tools: Tools, pieces: Sequence[str]) -> tuple[str, list[tuple[str, str]]]:
    """The answer and the calls that a reader tells of."""
    reader, text, calls = CallReader(tools), "", []
    events = [event for piece in pieces for event in reader.feed(piece)] + [*reader.finish()]
    for event in events:
        match event:
            case AnswerText():
                assert event.text
                text += event.text
            case CallBegins():
                assert event.index == len(calls)
                calls.append((event.name, ""))
            case ArgumentsText():
                assert event.text and event.index == len(calls) - 1
                calls[-1] = (calls[-1][0], calls[-1][1] + event.text)
    return text, calls


def cut(text: str, places: Sequence[int]) -> list[str]:
    ends = sorted({place % (len(text) + 1) for place in places} | {0, len(text)})
    return [text[a:b] for a, b in zip(ends, ends[1:], strict=False)]


@st.composite
def written(draw: st.DrawFn) -> tuple[Tools, str, str]:
    """Tools, a text that they allow, and what of it stands before the calls."""
    envelope = draw(st.sampled_from(sorted(ENVELOPES)))
    choice = draw(st.sampled_from(["auto", "required", "union"]))
    is_many = ENVELOPES[envelope].separator is not None
    calls = draw(
        st.lists(
            st.tuples(st.sampled_from(NAMES), st.sampled_from(ARGUMENTS)),
            min_size=1,
            max_size=3 if is_many else 1,
        )
    )
    may_talk = choice == "auto" and not ENVELOPES[envelope].before_answer
    before = draw(st.sampled_from(FREE)) if may_talk else ""
    response = ANSWER if choice == "union" else None
    tools = Tools(TOOLS, envelope, choice.replace("union", "auto"), response=response)
    return tools, write(envelope, calls, before), before


@given(written(), st.lists(st.integers(0, 500), max_size=8))
def test_what_is_told_piece_by_piece_is_what_the_whole_says(
    case: tuple[Tools, str, str], places: list[int]
) -> None:
    tools, text, before = case
    expected = [(call.name, call.arguments) for call in finished_calls(text, tools)]
    assert expected
    assert read(tools, cut(text, places)) == (before, expected)
    assert read(tools, list(text)) == (before, expected)


@pytest.mark.parametrize("envelope", sorted(ENVELOPES))
@pytest.mark.parametrize("answer", ["Just words.", '{"name": 1', "ends in <tool_cal"])
def test_an_answer_is_told_as_it_is(envelope: str, answer: str) -> None:
    fixed = ENVELOPES[envelope]
    if fixed.trigger.startswith(answer[:4]):
        pytest.skip("the grammar forbids it")
    text = fixed.before_answer + answer
    assert read(Tools(TOOLS, envelope), list(text)) == (answer, [])


@pytest.mark.parametrize("envelope", sorted(ENVELOPES))
def test_a_json_answer_that_begins_like_a_call_is_an_answer(envelope: str) -> None:
    answer = '{"name": "get_nothing"}'
    tools = Tools(TOOLS, envelope, response=ANSWER)
    text = ENVELOPES[envelope].before_answer + answer
    assert read(tools, list(text)) == (answer, [])


def test_names_are_told_before_arguments_and_these_as_they_grow() -> None:
    reader = CallReader(Tools(TOOLS, "hermes"))
    assert [*reader.feed("Well <tool")] == [AnswerText("Well ")]
    assert [*reader.feed('_call>\n{"name": "get_weather", "argum')] == []
    assert [*reader.feed('ents": {"ci')] == [CallBegins(0, "get_weather"), ArgumentsText(0, '{"ci')]
    assert [*reader.feed('ty": "Rome"}}\n</tool_')] == [ArgumentsText(0, 'ty": "Rome"}')]
    assert [*reader.feed("call>"), *reader.finish()] == []


def test_a_call_that_is_cut_short_is_told_as_far_as_it_came() -> None:
    tools = Tools(TOOLS, "json", "required")
    assert read(tools, ['{"name": "get", "arguments": {"a": [1']) == ("", [("get", '{"a": [1')])
    assert read(tools, ['{"name": "ge']) == ('{"name": "ge', [])
