"""/v1/chat/completions: full bodies, constraints held, and the same said whole and in pieces."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import pytest

from tests.server.conftest import ASK, MODEL, PERSON, Server, json_schema, schema_of

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": schema_of(city={"type": "string", "maxLength": 12}),
    },
}
TIME = {"type": "function", "function": {"name": "get_time"}}
CITY = WEATHER["function"]["parameters"]


def content(answer: dict[str, Any], index: int = 0) -> Any:
    return answer["choices"][index]["message"]["content"]


def calls_of(answer: dict[str, Any]) -> list[tuple[str, str]]:
    calls = answer["choices"][0]["message"].get("tool_calls", [])
    return [(call["function"]["name"], call["function"]["arguments"]) for call in calls]


def joined(chunks: list[dict[str, Any]], index: int = 0) -> dict[str, Any]:
    """A streamed choice as SDKs put it together: strings behind each other."""
    message: dict[str, Any] = {"content": "", "tool_calls": [], "finish_reason": None}
    for chunk in chunks:
        for choice in chunk["choices"]:
            if choice["index"] != index:
                continue
            assert message["finish_reason"] is None, "something came behind the end"
            message["finish_reason"] = choice["finish_reason"]
            message["content"] += choice["delta"].get("content") or ""
            for part in choice["delta"].get("tool_calls", []):
                if part["index"] == len(message["tool_calls"]):
                    assert part["type"] == "function" and part["id"]
                    message["tool_calls"].append([part["function"]["name"], ""])
                else:
                    assert set(part) == {"index", "function"}
                message["tool_calls"][part["index"]][1] += part["function"]["arguments"]
    return message


def test_a_whole_answer_has_every_field_that_clients_look_for(server: Server) -> None:
    answer = server.chat(response_format=json_schema(PERSON))
    assert answer["object"] == "chat.completion" and answer["model"] == MODEL
    assert answer["id"].startswith("chatcmpl-") and answer["created"] > 1e9
    (choice,) = answer["choices"]
    assert (choice["index"], choice["finish_reason"], choice["logprobs"]) == (0, "stop", None)
    message = choice["message"]
    assert (message["role"], message["refusal"]) == ("assistant", None)
    assert "tool_calls" not in message
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert "cached_tokens" in usage["prompt_tokens_details"]
    assert set(usage["completion_tokens_details"]) == {
        "reasoning_tokens",
        "accepted_prediction_tokens",
        "rejected_prediction_tokens",
    }


FORMS: dict[str, dict[str, Any]] = {
    "response_format": {"response_format": json_schema(PERSON)},
    "strict": {"response_format": json_schema(PERSON, strict=True)},
    "not strict": {"response_format": json_schema(PERSON, strict=False)},
    "beside type": {"response_format": {"type": "json_schema", "schema": PERSON}},
    "llama.cpp object": {"response_format": {"type": "json_object", "schema": PERSON}},
    "structured_outputs": {"structured_outputs": {"json": PERSON}},
    "as text": {"structured_outputs": {"json": json.dumps(PERSON)}},
    "guided_json": {"guided_json": PERSON},
    "SGLang": {"json_schema": json.dumps(PERSON)},
    "llama.cpp": {"json_schema": PERSON},
}


@pytest.mark.parametrize("form", list(FORMS))
def test_a_schema_is_held_whatever_field_it_comes_in(form: str, server: Server) -> None:
    value = json.loads(content(server.chat(**FORMS[form])))
    jsonschema.validate(value, PERSON)
    assert set(value) == {"name", "born"}


TEXTS: dict[str, tuple[dict[str, Any], str]] = {
    "regex": ({"regex": "[a-c]{3}"}, "[a-c]{3}"),
    "guided_regex": ({"guided_regex": "[a-c]{3}"}, "[a-c]{3}"),
    "structured regex": ({"structured_outputs": {"regex": "[0-9]{4}"}}, "[0-9]{4}"),
    "choice": ({"structured_outputs": {"choice": ["yes", "no"]}}, "yes|no"),
    "guided_choice": ({"guided_choice": ["yes", "no"]}, "yes|no"),
    "ebnf": ({"ebnf": 'root ::= "x" [0-9] [0-9]'}, "x[0-9]{2}"),
    "gbnf": ({"grammar": 'root ::= "x" ("a" | "b")'}, "x[ab]"),
    "lark": ({"structured_outputs": {"grammar": 'start: "x" /[0-9]{2}/'}}, "x[0-9]{2}"),
    "structural tag": (
        {
            "response_format": {
                "type": "structural_tag",
                "format": {"type": "const_string", "value": "hello"},
            }
        },
        "hello",
    ),
}


@pytest.mark.parametrize("form", list(TEXTS))
def test_other_constraints_are_held_too(form: str, server: Server) -> None:
    body, pattern = TEXTS[form]
    assert re.fullmatch(pattern, content(server.chat(**body)))


@pytest.mark.parametrize("max_tokens", [2, 3, 4, 7, 12, 20])
def test_json_object_is_a_whole_object_however_few_tokens_it_may_have(
    max_tokens: int, server: Server
) -> None:
    body = {"response_format": {"type": "json_object"}, "max_tokens": max_tokens}
    answer = server.chat(**body)
    assert isinstance(json.loads(content(answer)), dict)
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] <= max_tokens
    assert joined(server.stream(**body))["content"] == content(answer)


def test_text_is_free(server: Server) -> None:
    assert content(server.chat(response_format={"type": "text"}, max_tokens=8))


def test_whitespace_can_be_left_out(server: Server) -> None:
    given = {"json": PERSON, "disable_any_whitespace": True}
    text = content(server.chat(structured_outputs=given))
    assert text == json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False)


def test_pieces_are_the_whole(server: Server) -> None:
    whole = server.chat(response_format=json_schema(PERSON))
    chunks = server.stream(
        response_format=json_schema(PERSON), stream_options={"include_usage": True}
    )
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1]["choices"] == []
    counts = ("prompt_tokens", "completion_tokens", "total_tokens")
    assert all(chunks[-1]["usage"][name] == whole["usage"][name] for name in counts)
    streamed = joined(chunks)
    assert (streamed["content"], streamed["finish_reason"]) == (content(whole), "stop")


def test_usage_is_told_only_if_asked_for(server: Server) -> None:
    assert all("usage" not in chunk for chunk in server.stream(max_tokens=4))


def test_choices_come_in_order_and_each_is_whole(server: Server) -> None:
    body = {"response_format": json_schema(PERSON), "n": 3, "temperature": 1, "seed": 5}
    whole, chunks = server.chat(**body), server.stream(**body)
    assert [chunk["choices"][0]["index"] for chunk in chunks[:3]] == [0, 1, 2]
    for index in range(3):
        assert joined(chunks, index)["content"] == content(whole, index)
        jsonschema.validate(json.loads(content(whole, index)), PERSON)
    assert len({content(whole, index) for index in range(3)}) > 1


TOOL_CHOICES: dict[str, Any] = {
    "required": "required",
    "named": {"type": "function", "function": {"name": "get_weather"}},
    "flat": {"type": "function", "name": "get_weather"},
    "allowed": {
        "type": "allowed_tools",
        "allowed_tools": {
            "mode": "required",
            "tools": [{"type": "function", "function": {"name": "get_weather"}}],
        },
    },
}


@pytest.mark.parametrize("is_formatted", [False, True])
@pytest.mark.parametrize("choice", list(TOOL_CHOICES))
def test_a_call_that_is_asked_for_is_made(choice: str, is_formatted: bool, server: Server) -> None:
    body = {
        "tools": [WEATHER, TIME],
        "tool_choice": TOOL_CHOICES[choice],
        "parallel_tool_calls": False,
        **({"response_format": json_schema(PERSON)} if is_formatted else {}),
    }
    whole, streamed = server.chat(**body), joined(server.stream(**body))
    ((name, arguments),) = calls_of(whole)
    assert streamed["tool_calls"] == [[name, arguments]] and content(whole) is None
    assert whole["choices"][0]["finish_reason"] == streamed["finish_reason"] == "tool_calls"
    assert name in ("get_weather", "get_time") and (choice == "required" or name == "get_weather")
    jsonschema.validate(json.loads(arguments), CITY if name == "get_weather" else {})


def test_auto_with_a_schema_is_a_call_or_the_schema(server: Server) -> None:
    body = {"tools": [WEATHER], "response_format": json_schema(PERSON)}
    for text in ("What is the weather in Rome? Call get_weather.", ASK[0]["content"]):
        messages = [{"role": "user", "content": text}]
        answer = server.chat(**body, messages=messages)
        calls = calls_of(answer)
        schema = CITY if calls else PERSON
        jsonschema.validate(json.loads(calls[0][1] if calls else content(answer)), schema)
        streamed = joined(server.stream(**body, messages=messages))
        assert streamed["content"] == (content(answer) or "")
        assert [tuple(call) for call in streamed["tool_calls"]] == calls


@pytest.mark.parametrize(
    "body",
    [
        {"tools": []},
        {"tools": [], "tool_choice": "auto", "parallel_tool_calls": False},
        {"tool_choice": "required"},
        {"tools": [WEATHER], "tool_choice": "none"},
        {"user": "me", "metadata": {"a": "b"}, "store": True, "service_tier": "auto"},
        {"modalities": ["text"], "verbosity": "low", "prompt_cache_key": "x"},
        {"presence_penalty": 0, "frequency_penalty": 0.0, "top_k": -1, "logit_bias": {}},
        {"best_of": 1, "length_penalty": 1.0, "use_beam_search": False, "echo": False},
        {"add_generation_prompt": True, "skip_special_tokens": True, "documents": None},
        {"repeat_penalty": 1.0, "mirostat": 0, "n_predict": -1, "continue_final_message": False},
        {"reasoning_effort": "low", "priority": 1, "cache_salt": "x"},
    ],
)
def test_what_changes_nothing_is_let_pass(body: dict[str, Any], server: Server) -> None:
    answer = server.chat(**body, response_format=json_schema(PERSON))
    jsonschema.validate(json.loads(content(answer)), PERSON)


def test_histories_of_other_makers_are_read(server: Server) -> None:
    call = {
        "id": "1",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'},
    }
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": [{"type": "text", "text": "Answer in JSON."}]},
        {"role": "user", "name": "ada", "content": "Weather?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "status": "error", "content": "sunny"},
        {"role": "assistant", "content": [{"type": "text", "text": "It is sunny."}]},
        {"role": "user", "content": "And who are you?"},
    ]
    answer = server.chat(messages=messages, response_format=json_schema(PERSON), tools=[WEATHER])
    assert answer["choices"][0]["finish_reason"] in ("stop", "tool_calls")


def test_a_prompt_shows_the_schema_unless_told_not_to(server: Server) -> None:
    body = {"response_format": json_schema(PERSON)}
    shown, hidden = server.chat(**body), server.chat(**body, schema_in_prompt="never")
    assert shown["usage"]["prompt_tokens"] > hidden["usage"]["prompt_tokens"] + 20


def test_a_prompt_shows_what_an_answer_beside_tools_has_to_be(server: Server) -> None:
    tools = {"tools": [WEATHER], "max_tokens": 80}
    shown = server.chat(**tools, response_format=json_schema(PERSON))
    hidden = server.chat(**tools, response_format=json_schema(PERSON), schema_in_prompt="never")
    plain = server.chat(**tools, max_completion_tokens=1)
    num_shown, num_hidden, num_plain = (
        answer["usage"]["prompt_tokens"] for answer in (shown, hidden, plain)
    )
    assert num_shown > num_hidden + 20 and num_hidden == num_plain
    server.refused(**tools, response_format=json_schema(PERSON), schema_in_prompt="now and then")


def test_what_is_cut_short_says_length(server: Server) -> None:
    for body in ({}, {"response_format": json_schema({"type": "string", "minLength": 40})}):
        answer = server.chat(**body, max_tokens=4)
        assert answer["choices"][0]["finish_reason"] == "length"
        assert joined(server.stream(**body, max_tokens=4)) == {
            "content": content(answer),
            "tool_calls": [],
            "finish_reason": "length",
        }


def test_the_newer_limit_wins(server: Server) -> None:
    answer = server.chat(max_completion_tokens=3, max_tokens=50)
    assert answer["usage"]["completion_tokens"] == 3


def test_a_prediction_changes_nothing_of_what_is_written(server: Server) -> None:
    plain = server.chat(response_format=json_schema(PERSON))
    given = {"type": "content", "content": content(plain)}
    assert content(server.chat(response_format=json_schema(PERSON), prediction=given)) == content(
        plain
    )


def test_no_character_is_split(server: Server) -> None:
    body = {"regex": "(日本|😀){6}", "max_tokens": 60, "temperature": 1, "seed": 1}
    chunks = server.stream(**body)
    text = joined(chunks)["content"]
    assert re.fullmatch("(日本|😀){6}", text)
    for chunk in chunks:
        for choice in chunk["choices"]:
            assert "\ufffd" not in (choice["delta"].get("content") or "")


def test_logprobs_are_those_of_every_token_of_the_answer(server: Server) -> None:
    body = {"logprobs": True, "top_logprobs": 3, "response_format": json_schema(PERSON)}
    answer = server.chat(**body)
    entries = answer["choices"][0]["logprobs"]["content"]
    assert b"".join(bytes(entry["bytes"]) for entry in entries).decode() == content(answer)
    for entry in entries:
        assert -9999 <= entry["logprob"] <= 0 and len(entry["top_logprobs"]) <= 3
    streamed = [
        entry
        for chunk in server.stream(**body)
        for choice in chunk["choices"]
        for entry in (choice["logprobs"] or {"content": []})["content"]
    ]
    assert [entry["token"] for entry in streamed] == [entry["token"] for entry in entries]


def test_bias_and_penalties_and_limits_are_honoured(server: Server) -> None:
    (token_id, *_) = server.post("/tokenize", prompt="Hello")["tokens"]
    assert content(server.chat(max_tokens=1, logit_bias={str(token_id): 100})) == "Hello"
    assert content(server.chat(max_tokens=3, allowed_token_ids=[token_id])) == "Hello" * 3
    assert "a" not in content(server.chat(max_tokens=30, bad_words=["a"]))
    assert server.chat(max_tokens=12, min_tokens=12)["usage"]["completion_tokens"] == 12
    written = content(
        server.chat(
            max_tokens=3, allowed_token_ids=[token_id, token_id + 1], repetition_penalty=10.0
        )
    )
    assert written != "Hello" * 3


def test_a_budget_of_reasoning_is_kept(server: Server) -> None:
    messages = [{"role": "user", "content": "Think: <think>"}]
    body = {"messages": messages, "reasoning_effort": "none", "max_tokens": 5}
    assert "reasoning" not in server.chat(**body)["choices"][0]["message"]
