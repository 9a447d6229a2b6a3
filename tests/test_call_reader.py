"""Calls read while they are written say what the finished text says, however it was cut."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from structspec import JsonSchema, Tools, Vocabulary
from structspec.call_likeness import may_look_like_a_call
from structspec.call_reader import AnswerText, ArgumentsText, CallBegins, CallReader
from structspec.chat.spelled_text import SpelledText
from structspec.constraint import Envelope
from structspec.grammars.base import CompiledGrammar
from structspec.grammars.envelopes import ENVELOPES
from structspec.grammars.tool_calls import finished_calls
from structspec.request import Request, SamplingParams
from tests.grammars.cases import backend

VOCABULARY = Vocabulary.bytes()
NAMES = ("get", "get_weather", "später")
TOOLS = [{"name": name, "parameters": {"type": "object"}} for name in NAMES]
ANSWER = JsonSchema({"type": "object", "properties": {"name": {"type": "string"}}})
FREE = ("", "Let me see. ", "I say {", 'a "quoted" {"name" of ', "<tool", "[TOOL_ ", "日本 ")
MARKS = sorted(  # of all envelopes: what might mislead who looks for it in a string
    {
        text
        for fixed in ENVELOPES.values()
        for text in (
            *(fixed.opening, fixed.before_name, fixed.before_arguments, fixed.after_arguments),
            *(fixed.separator or "", fixed.closing, fixed.trigger, *fixed.markers),
            f"{fixed.before_name}get{fixed.before_arguments}{{}}",
        )
        if text
    }
)
TEXTS = st.lists(
    st.sampled_from((*MARKS, '"', "\\", '"}}', "{", "日", "😀", "\n", "é")) | st.text()
).map("".join)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(TEXTS, VALUES, max_size=3)


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
    return [text[a:b] for a, b in pairwise(ends_of(text, places))]


def ends_of(text: Sequence[object], places: Sequence[int]) -> list[int]:
    return sorted({place % (len(text) + 1) for place in places} | {0, len(text)})


@st.composite
def written(draw: st.DrawFn) -> tuple[Tools, str, str, list[tuple[str, str]]]:
    """Tools, a text that they allow, what of it stands before the calls, and the calls."""
    envelope = draw(st.sampled_from(sorted(ENVELOPES)))
    choice = draw(st.sampled_from(["auto", "required", "union"]))
    is_many = ENVELOPES[envelope].separator is not None
    calls = draw(
        st.lists(
            st.tuples(st.sampled_from(NAMES), ARGUMENTS),
            min_size=1,
            max_size=3 if is_many else 1,
        )
    )
    may_talk = choice == "auto" and not ENVELOPES[envelope].before_answer
    before = draw(st.sampled_from(FREE)) if may_talk else ""
    response = ANSWER if choice == "union" else None
    tools = Tools(TOOLS, envelope, choice.replace("union", "auto"), response=response)
    said = [(name, json.dumps(arguments, ensure_ascii=False)) for name, arguments in calls]
    return tools, write(envelope, calls, before), before, said


@settings(deadline=None)
@given(written(), st.lists(st.integers(0, 5000), max_size=8))
def test_what_is_told_piece_by_piece_is_what_was_written(
    case: tuple[Tools, str, str, list[tuple[str, str]]], places: list[int]
) -> None:
    """Whatever stands in the arguments: marks of any envelope, quotes, brackets, any script."""
    tools, text, before, calls = case
    assert [(call.name, call.arguments) for call in finished_calls(text, tools)] == calls
    assert read(tools, cut(text, places)) == (before, calls)
    assert read(tools, list(text)) == (before, calls)


@settings(max_examples=60, deadline=None)
@given(written(), st.lists(st.integers(0, 5000), max_size=8))
def test_the_texts_that_are_read_here_are_those_that_grammars_write(
    case: tuple[Tools, str, str, list[tuple[str, str]]], places: list[int]
) -> None:
    """And tokens that cut characters are put together before anything is told."""
    tools, text, before, calls = case
    assume(tools.envelope != "harmony")  # bytes alone do not write it
    token_ids = list(text.encode())
    matcher = compiled(tools.envelope, tools.choice, tools.response is not None).matcher()
    assert all(map(matcher.accept, (*token_ids, 256)))
    request = Request(0, [0], SamplingParams(), len(token_ids))
    spelled, pieces = SpelledText(request, VOCABULARY), []
    for piece in [token_ids[a:b] for a, b in pairwise(ends_of(token_ids, places))]:
        request.token_ids += piece
        pieces.append(spelled.take())
    pieces.append(spelled.take(is_last=True))
    assert "".join(pieces) == text and read(tools, pieces) == (before, calls)


@cache
def compiled(envelope: Envelope, choice: str, is_union: bool) -> CompiledGrammar:
    tools = Tools(TOOLS, envelope, choice, response=ANSWER if is_union else None)
    return backend("bytes", "llguidance").compile(tools)


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


LIKE_CALLS = JsonSchema({"properties": {"name": {"type": "string"}, "arguments": {}, "x": {}}})
CITY = [
    {
        "name": "get",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    }
]


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ('{"name": "get", "arguments": {"city": "Rome"}}', [("get", '{"city": "Rome"}')]),
        ('{"name": "get", "arguments": {"city": "Rome"}, "x": 1}', []),
        ('{"name": "get", "arguments": {"town": "Rome"}}', []),  # none that the tool takes
        ('{"name": "get", "arguments": {"ci', []),  # cut short: nobody knows
        ('{"name": "other"}', []),
    ],
)
def test_an_answer_that_may_begin_as_a_call_is_told_apart_at_its_end(
    text: str, calls: list[tuple[str, str]]
) -> None:
    tools = Tools(CITY, "json", response=LIKE_CALLS)
    assert read(tools, list(text)) == ("" if calls else text, calls)


KEYS = {"name": {"type": "string"}, "arguments": {}}
PLAIN = {"type": "object", "properties": {"name": {}, "born": {}}}
LIKENESS: dict[str, tuple[dict | bool, bool]] = {
    "both keys": ({"properties": KEYS}, True),
    "one of them": (PLAIN, False),
    "open": ({**PLAIN, "additionalProperties": True}, True),
    "closed": ({**PLAIN, "additionalProperties": False}, False),
    "a map": ({"type": "object"}, True),
    "patterns": ({**PLAIN, "patternProperties": {"^a": {}}}, True),
    "anything": (True, True),
    "a list": ({"type": "array", "items": {"properties": KEYS}}, False),
    "a branch": ({"anyOf": [PLAIN, {"properties": KEYS}]}, True),
    "no branch": ({"oneOf": [PLAIN, {"type": "null"}]}, False),
    "all of": ({"allOf": [PLAIN, {"properties": KEYS}]}, True),
    "elsewhere": ({"$ref": "#/$defs/k", "$defs": {"k": {"properties": KEYS}}}, True),
    "elsewhere, plain": ({"$ref": "#/$defs/k", "$defs": {"k": PLAIN}}, False),
    "itself": ({"$ref": "#"}, True),
    "constant": ({"const": {"name": "get", "arguments": {}}}, True),
    "constants": ({"enum": [{"name": 1}, 2]}, False),
}


@pytest.mark.parametrize("case", list(LIKENESS))
@pytest.mark.parametrize("envelope", ["json", "llama3", "hermes"])
def test_only_answers_with_both_keys_of_a_call_may_look_like_one(
    case: str, envelope: Envelope
) -> None:
    schema, expected = LIKENESS[case]
    text = json.dumps(schema).replace("arguments", ENVELOPES[envelope].arguments_key or "-")
    tools = Tools(TOOLS, envelope, response=JsonSchema(text))
    assert may_look_like_a_call(tools) == (expected and envelope != "hermes")
    assert not may_look_like_a_call(Tools(TOOLS, envelope, "required", response=JsonSchema(text)))


def test_open_answers_of_a_plain_schema_may_have_any_key() -> None:
    assert may_look_like_a_call(Tools(TOOLS, "json", response=JsonSchema(PLAIN, closed=False)))


@settings(deadline=None)
@given(st.text("ab<", max_size=12), st.lists(st.integers(0, 12), max_size=4), st.integers(0, 4))
def test_a_stop_string_ends_spelled_text_as_it_ends_the_text(
    text: str, places: list[int], min_tokens: int
) -> None:
    params = SamplingParams(stop=("ab", "<a"), min_tokens=min_tokens)
    request = Request(0, [0, 0], params, 100)
    spelled, pieces = SpelledText(request, VOCABULARY), []
    token_ids = list(text.encode())
    for a, b in pairwise(ends_of(token_ids, places)):
        for token_id in token_ids[a:b]:
            if not request.text.is_stopped:
                request.token_ids.append(token_id)
                request.append_text(token_id, bytes([token_id]))
        pieces.append(spelled.take())
        assert request.text.text.startswith("".join(pieces))  # nothing has to be taken back
    assert "".join([*pieces, spelled.take(is_last=True)]) == request.text.text


def test_what_ends_a_request_is_no_text_of_it() -> None:
    request = Request(0, [0], SamplingParams(stop_token_ids=(98,)), 100)
    request.token_ids += [97, 98]
    assert SpelledText(request, VOCABULARY).take(is_last=True) == "a"
