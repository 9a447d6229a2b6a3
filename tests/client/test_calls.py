"""Options, lists of prompts and streams."""

from __future__ import annotations

from json.encoder import encode_basestring
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from structspec import GrammarError, InvalidRequest, OutputInvalid, ServerError, Truncated
from structspec.client.answers import StreamReader
from tests.client.fakes import PAGES, Connect, Fake, Lines

KINDS = [*PAGES, "openai"]


@pytest.mark.parametrize("kind", KINDS)
def test_sampling_is_sent_under_the_names_of_the_server(kind: str, connect: Connect) -> None:
    fake = Fake(kind)
    connect(fake).generate("?", temperature=0.5, max_tokens=9, stop="x", logit_bias={3: 1})
    limit = "max_completion_tokens" if kind == "openai" else "max_tokens"
    assert fake.body[limit] == 9
    assert fake.body["temperature"] == 0.5 and list(fake.body["stop"]) == ["x"]
    assert fake.body["logit_bias"] == {"3": 1.0}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("option", [{"top_k": 5}, {"bad_words": ["x"]}, {"repetition_penalty": 2}])
def test_an_option_is_sent_or_refused_never_dropped(
    kind: str, option: dict[str, Any], connect: Connect
) -> None:
    fake = Fake(kind)
    (name,) = option
    try:
        connect(fake).generate("?", **option)
    except InvalidRequest as error:
        assert name in str(error) and kind in str(error)
        assert not fake.bodies
    else:
        sent = {"repeat_penalty" if kind == "llama.cpp" and "pen" in name else name}
        assert sent <= fake.body.keys()


def test_what_only_an_engine_here_has_is_refused(connect: Connect) -> None:
    for call in ("generate", "generate_raw", "stream"):
        with pytest.raises(InvalidRequest, match="backend= is for LLM"):
            getattr(connect(Fake("structspec")), call)("?", regex="a", backend="xgrammar")


def test_drafting_is_a_hint_for_who_knows_it(connect: Connect) -> None:
    for kind in KINDS:
        fake = Fake(kind)
        connect(fake).generate("?", speculative=False, prediction="hello")
        assert ("speculative" in fake.body) == (kind == "structspec")
        assert ("prediction" in fake.body) == (kind in ("structspec", "openai"))


def test_reasoning_is_asked_for_in_the_servers_words(connect: Connect) -> None:
    fake = Fake("vllm")
    connect(fake).generate("?", reasoning=True, max_reasoning_tokens=5)
    assert fake.body["chat_template_kwargs"]["enable_thinking"] is True
    assert fake.body["thinking_token_budget"] == 5
    with pytest.raises(InvalidRequest, match="reasoning"):
        connect(Fake("openai")).generate("?", reasoning=True)


def test_reasoning_is_told_beside_the_answer(connect: Connect) -> None:
    fake = Fake("vllm", {"content": "4", "reasoning_content": "2 + 2"})
    result = connect(fake).generate_raw("?")
    assert (result.text, result.reasoning) == ("4", "2 + 2")


def test_a_list_of_prompts_gives_a_list_in_its_order(connect: Connect) -> None:
    fake = Fake("vllm", "a")
    assert connect(fake).generate(["x", "y", "z"]) == ["a", "a", "a"]
    asked = sorted(body["messages"][-1]["content"] for body in fake.bodies)
    assert asked == ["x", "y", "z"]
    assert connect(fake).generate([]) == []


def test_several_outputs_of_a_prompt_have_seeds_of_their_own(connect: Connect) -> None:
    fake = Fake("vllm")
    assert connect(fake).generate(["x", "y"], n=3, seed=5) == [["hello"] * 3] * 2
    assert len({body["seed"] for body in fake.bodies}) == 3


def test_an_error_takes_the_place_of_its_prompt(connect: Connect) -> None:
    told: list[int] = []
    fake = Fake("vllm", "a", "c")
    results = connect(fake).generate_raw(
        ["x", "y", "z"],
        choices=["a"],
        max_attempts=1,
        return_errors=True,
        on_result=lambda index, result: told.append(index),
    )
    assert sorted(told) == [0, 1, 2]
    assert sum(isinstance(result, OutputInvalid) for result in results) == 2
    with pytest.raises(OutputInvalid):
        connect(Fake("vllm", "a", "c")).generate(["x", "y"], choices=["a"], max_attempts=1)


def test_what_on_result_raises_ends_the_call(connect: Connect) -> None:
    def fail(index: int, result: Any) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        connect(Fake("vllm")).generate_raw(["x", "y"], on_result=fail)


def test_our_own_server_is_told_what_only_it_could_check(connect: Connect) -> None:
    fake = Fake("structspec", "1")
    connect(fake).generate("?", schema=int)
    connect(fake).generate("?", regex="[0-9]")
    connect(fake).generate("?", regex="[0-9]", on_unsupported="error")
    told = [body["on_unsupported"] for body in fake.bodies]
    assert told == ["ignore", "validate", "error"]  # a schema is checked by the client


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_is_text_in_whole_characters(kind: str, connect: Connect) -> None:
    fake = Fake(kind, "née 🎉")
    assert "".join(connect(fake).stream("?")) == "née 🎉"
    assert fake.body["stream"] is True


@given(st.text("a\n\r\x85\u2028\U0001f600é", max_size=8), st.integers(1, 30))
def test_a_stream_reads_the_same_however_it_is_cut(text: str, size: int) -> None:
    lines = [
        f'data: {{"choices": [{{"delta": {{"content": {encode_basestring(one)}}}}}]}}\r\n\r\n'
        for one in text
    ]
    data = "".join([*lines, ": ping\n\ndata: [DONE]\n\n"]).encode()
    reader = StreamReader(None)
    read = [reader.feed(data[at : at + size]) for at in range(0, len(data), size)]
    assert "".join(read) + reader.finish() == text == reader.said.text


def test_a_stream_is_validated_behind_its_last_piece(connect: Connect) -> None:
    assert "".join(connect(Fake("vllm", "12")).stream("?", schema=int)) == "12"
    with pytest.raises(OutputInvalid):
        connect(Fake("vllm", "x")).stream("?", schema=int)


def test_a_stream_that_breaks_off_is_an_error(connect: Connect) -> None:
    lines = Lines('data: {"choices": [{"delta": {"content": "a"}}]}\n\n')
    with pytest.raises(ServerError, match="middle"):
        connect(Fake("vllm", lines)).stream("?")


def test_an_error_in_a_stream_has_our_type(connect: Connect) -> None:
    lines = Lines('data: {"error": {"message": "broken", "code": "engine_error"}}\n\n')
    with pytest.raises(ServerError, match="broken"):
        connect(Fake("vllm", lines)).stream("?")
    lines = Lines('data: {"error": {"message": "bad", "code": "invalid_json_schema"}}\n\n')
    with pytest.raises(GrammarError, match="bad"):
        connect(Fake("vllm", lines)).stream("?", schema=int)


def test_a_stream_that_cannot_be_read_is_an_error(connect: Connect) -> None:
    deep, long = "[" * 100_000, "9" * 10_000
    for said in ("{", "3", '{"choices": [3]}', deep, f'{{"usage": {long}}}'):
        line = f"data: {said}"
        with pytest.raises(ServerError, match="cannot be read"):
            connect(Fake("vllm", Lines(f"{line}\n\n"))).stream("?")


class Letter(BaseModel):
    a: str


def test_a_stream_of_what_comes_wrapped_is_taken_out_as_it_comes(connect: Connect) -> None:
    fake = Fake("openai", '{ "value" : [{"a": "}"}, {"a": ""}] }\n')
    pieces = connect(fake).stream("?", schema=list[Letter])
    assert "".join(pieces) == '[{"a": "}"}, {"a": ""}]'
    assert connect(fake).stream_items("?", schema=list[Letter]) == [Letter(a="}"), Letter(a="")]
    assert connect(Fake("openai", '{"value": "b"}')).stream("?", choices=["a", "b"]) == ["b"]
    with pytest.raises(OutputInvalid):
        connect(Fake("openai", '{"value": 1, "b": 2}')).stream("?", schema=list[int])


def test_a_stream_that_was_cut_is_told(connect: Connect) -> None:
    choice = '{"delta": {"content": "{"}, "finish_reason": "length"}'
    lines = Lines(f'data: {{"choices": [{choice}]}}\n\ndata: [DONE]\n\n')
    with pytest.raises(Truncated):
        connect(Fake("vllm", lines)).stream("?", schema=dict)
