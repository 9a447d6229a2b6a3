"""LlamaIndex's messages as the engine and servers read them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.base.llms.types import (
    CachePoint,
    ChatMessage,
    CitableBlock,
    ImageBlock,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)

from structspec import InvalidRequest
from structspec.integrations.llama_index_messages import to_messages

HI = ChatMessage(content="Hi")


def one(message: ChatMessage) -> dict[str, Any]:
    (told,) = to_messages([message], None)
    return told


@pytest.mark.parametrize(
    ("role", "told"),
    [
        *(("system", "system"), ("developer", "system"), ("user", "user"), ("tool", "tool")),
        *(("assistant", "assistant"), ("model", "assistant"), ("chatbot", "assistant")),
        ("function", "tool"),
    ],
)
def test_every_role_becomes_one_that_chat_templates_know(role: str, told: str) -> None:
    assert one(ChatMessage(role=role, content="x"))["role"] == told


def test_every_role_there_is_was_looked_at() -> None:
    assert {role.value for role in MessageRole} == {
        *("system", "developer", "user", "assistant", "function", "tool", "chatbot", "model")
    }


def test_text_comes_from_all_blocks_that_have_some() -> None:
    blocks = [
        TextBlock(text="a"),
        CachePoint(cache_control={"type": "ephemeral"}),
        CitableBlock(title="t", source="s", content=[TextBlock(text="b")]),
        TextBlock(text="c"),
    ]
    assert one(ChatMessage(blocks=blocks))["content"] == "a\nb\nc"


def test_what_is_no_text_is_refused_with_its_place() -> None:
    picture = ChatMessage(blocks=[TextBlock(text="a"), ImageBlock(url="http://x/y.png")])
    with pytest.raises(InvalidRequest, match=r"messages\[1\].blocks\[1\].*ImageBlock"):
        to_messages([HI, picture], None)
    with pytest.raises(InvalidRequest, match="at least one"):
        to_messages([], None)


def test_calls_are_read_from_blocks_and_else_from_where_older_integrations_put_them() -> None:
    block = ToolCallBlock(tool_call_id="1", tool_name="f", tool_kwargs={"a": "ü"})
    body = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": "ü"}'}}
    both = ChatMessage(
        role="assistant", blocks=[block], additional_kwargs={"tool_calls": [body, body]}
    )
    older = ChatMessage(role="assistant", additional_kwargs={"tool_calls": [body]})
    unfinished = ToolCallBlock(tool_call_id="1", tool_name="f", tool_kwargs='{"a": "ü"}')
    for message in (both, older, ChatMessage(role="assistant", blocks=[unfinished])):
        assert one(message)["tool_calls"] == [body]
    broken = ChatMessage(role="assistant", additional_kwargs={"tool_calls": ["f"]})
    with pytest.raises(
        InvalidRequest, match=r"messages\[0\].additional_kwargs\['tool_calls'\]\[0\]"
    ):
        to_messages([broken], None)


def test_thoughts_and_the_ids_of_results_are_kept() -> None:
    thinking = ChatMessage(
        role="assistant", blocks=[ThinkingBlock(content="hm"), TextBlock(text="x")]
    )
    assert one(thinking) == {"role": "assistant", "content": "x", "reasoning_content": "hm"}
    result = ChatMessage(role="tool", content="7", additional_kwargs={"tool_call_id": "1"})
    assert one(result) == {"role": "tool", "content": "7", "tool_call_id": "1"}


def test_the_system_prompt_stands_first_once_and_with_what_else_is_the_systems() -> None:
    system = ChatMessage(role="system", content="Be brief.")
    asked = ("system", "user")
    for messages, text in (
        ([HI], "Be kind."),
        ([ChatMessage(role="system", content="Be kind."), HI], "Be kind."),
        ([system, HI], "Be kind.\n\nBe brief."),
        ([system, system, HI], "Be kind.\n\nBe brief.\n\nBe brief."),
    ):
        told = to_messages(messages, "Be kind.")
        assert tuple(one["role"] for one in told) == asked
        assert told[0]["content"] == text
    assert to_messages([HI], None) == [{"role": "user", "content": "Hi"}]


blocks = st.one_of(
    st.builds(TextBlock, text=st.text()),
    st.builds(ThinkingBlock, content=st.text()),
    st.builds(
        ToolCallBlock,
        tool_call_id=st.text(),
        tool_name=st.text(min_size=1),
        tool_kwargs=st.dictionaries(st.text(), st.integers() | st.text() | st.none()),
    ),
)
messages = st.builds(
    ChatMessage, role=st.sampled_from(MessageRole), blocks=st.lists(blocks, max_size=4)
)


@given(st.lists(messages, min_size=1, max_size=4), st.none() | st.text())
def test_messages_stay_as_they_were_and_arguments_arrive(
    given_messages: list[ChatMessage], system_prompt: str | None
) -> None:
    before = [message.model_copy(deep=True) for message in given_messages]
    told = to_messages(given_messages, system_prompt)
    assert given_messages == before
    written = [
        json.loads(call["function"]["arguments"])
        for message in told
        for call in message.get("tool_calls", ())
    ]
    calls = [
        block.tool_kwargs
        for message in given_messages
        if message.role in (MessageRole.ASSISTANT, MessageRole.CHATBOT, MessageRole.MODEL)
        for block in message.blocks
        if isinstance(block, ToolCallBlock)
    ]
    assert written == calls
