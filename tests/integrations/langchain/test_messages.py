"""Messages there and back, without a model."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from structspec.call_reader import AnswerText, ArgumentsText, CallBegins
from structspec.chat.events import ReasoningText
from structspec.chat.messages import read_messages
from structspec.chat.turns import Said
from structspec.errors import InvalidRequest, OutputInvalid, Truncated
from structspec.generation import Generation
from structspec.integrations.langchain_messages import (
    to_chunk,
    to_failed_chunk,
    to_failed_message,
    to_message,
    to_openai,
)
from structspec.request import RequestStats, Usage
from structspec.tool_calls import ToolCall


def said_of(text: str, calls: list[tuple[str, str]], reasoning: str | None) -> Said:
    stats = RequestStats(num_cached_tokens=3)
    usage = Usage(7, 5, reasoning_tokens=2)
    made = tuple(ToolCall(name, json.loads(written), written) for name, written in calls)
    generation = Generation(text, text, (), "stop", usage, stats, None, reasoning=reasoning)
    return Said(text, made, text, generation)


texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
arguments = st.dictionaries(texts, st.integers() | texts | st.none(), max_size=3).map(json.dumps)


calls_made = st.lists(st.tuples(st.sampled_from(["add", "look_up"]), arguments), max_size=2)


@settings(deadline=None, max_examples=50)
@given(texts, calls_made, texts, st.data())
def test_chunks_add_up_to_the_message_however_a_text_is_cut(
    text: str, calls: list[tuple[str, str]], reasoning: str, data: st.DataObject
) -> None:
    def pieces(whole: str) -> list[str]:
        cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=3)))
        return [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]

    events = [ReasoningText(piece) for piece in pieces(reasoning)]
    events += [AnswerText(piece) for piece in pieces(text)]
    for index, (name, written) in enumerate(calls):
        events += [CallBegins(index, name)]
        events += [ArgumentsText(index, piece) for piece in pieces(written)]
    said = said_of(text, calls, reasoning)
    first, *rest = [to_chunk(event, "m") for event in [*events, said]]
    streamed, whole = sum(rest, first), to_message(said, "m")
    assert streamed.content == whole.content
    assert streamed.additional_kwargs == whole.additional_kwargs
    assert [(one["name"], one["args"]) for one in streamed.tool_calls] == [
        (one["name"], one["args"]) for one in whole.tool_calls
    ]
    assert streamed.usage_metadata == whole.usage_metadata
    assert streamed.response_metadata == whole.response_metadata
    assert streamed.chunk_position == "last"


def test_a_message_tells_its_usage_and_why_it_ended() -> None:
    message = to_message(said_of("", [("add", '{"a": 1}')], None), "a-model")
    assert message.usage_metadata == {
        "input_tokens": 7,
        "output_tokens": 5,
        "total_tokens": 12,
        "input_token_details": {"cache_read": 3},
        "output_token_details": {"reasoning": 2},
    }
    assert message.response_metadata == {
        "model_name": "a-model",
        "model_provider": "structspec",
        "finish_reason": "tool_calls",
    }


def test_reasoning_is_kept_and_told_the_model_again() -> None:
    message = to_message(said_of("42", [], "six times seven"), "m")
    assert message.content_blocks == [
        {"type": "reasoning", "reasoning": "six times seven"},
        {"type": "text", "text": "42"},
    ]
    [told] = to_openai([message])
    assert (told["content"], told["reasoning_content"]) == ("42", "six times seven")


def test_a_conversation_is_told_in_openais_words() -> None:
    call = {"name": "add", "args": {"a": 1}, "id": "c1", "type": "tool_call"}
    told = to_openai(
        [
            SystemMessage("be brief"),
            HumanMessage("1 + 1?", name="ada"),
            AIMessage("", tool_calls=[call]),
            ToolMessage("2", tool_call_id="c1"),
            ChatMessage("well", role="developer"),
        ]
    )
    function = {"name": "add", "arguments": '{"a": 1}'}
    assert told == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "1 + 1?", "name": "ada"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "2"},
        {"role": "developer", "content": "well"},
    ]


def test_a_tools_result_within_a_users_message_is_a_message_of_its_own() -> None:
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "2"}
    told = to_openai([HumanMessage([result, {"type": "text", "text": "and now?"}])])
    assert [message["role"] for message in told] == ["tool", "user"]
    assert to_openai([HumanMessage([result])]) == told[:1]


@pytest.mark.parametrize("kind", ["tool_use", "thinking", "reasoning", "tool_call"])
def test_what_a_message_has_beside_its_content_is_no_part_of_its_text(kind: str) -> None:
    message = AIMessage([{"type": kind, "id": "c1"}, {"type": "text", "text": "so"}])
    [read] = read_messages(to_openai([message]), "messages")
    assert read["content"] == "so"


def test_an_image_is_refused_with_its_place() -> None:
    image = HumanMessage([{"type": "image_url", "image_url": {"url": "data:"}}])
    with pytest.raises(InvalidRequest, match=r"messages\[0\].content\[0\].*image_url"):
        read_messages(to_openai([image]), "messages")


@pytest.mark.parametrize(
    "error, reason",
    [
        (Truncated("cut", text='{"a', usage=Usage(3, 2)), "length"),
        (OutputInvalid("no", text="[]", usage=Usage(3, 2)), "stop"),
        (KeyError("of a validator"), "stop"),
    ],
    ids=["truncated", "invalid", "of a validator"],
)
def test_a_failed_message_says_what_failed(error: Exception, reason: str) -> None:
    message = to_failed_message(error, "m")
    assert message.response_metadata["finish_reason"] == reason
    assert message.response_metadata["error"] == {
        "type": type(error).__name__,
        "message": str(error),
    }
    assert message.content == getattr(error, "text", "")
    chunk = to_failed_chunk(error, "m")
    assert chunk.content == ""
    assert chunk.usage_metadata == message.usage_metadata
