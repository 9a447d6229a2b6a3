"""Bad requests: refused with the place, in the shape that SDKs turn into their exceptions."""

from __future__ import annotations

from typing import Any

import pytest

from structspec import LLM
from tests.server.conftest import ASK, MODEL, PERSON, Server, json_schema, serve

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no message": ({"messages": []}, "messages"),
    "no messages": ({"messages": None}, "messages"),
    "a role": ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0]"),
    "an image": (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
        "messages[0].content[0].type",
    ),
    "a type": ({"temperature": "hot"}, "temperature"),
    "a range": ({"temperature": -1}, "temperature"),
    "top_p": ({"top_p": 0}, "top_p"),
    "logprobs": ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    "a bias": ({"logit_bias": {"1": 101}}, "logit_bias"),
    "choices": ({"n": 0}, "n"),
    "too many choices": ({"n": 1000}, "n"),
    "an unknown format": ({"response_format": {"type": "xml"}}, "response_format.type"),
    "no schema": (
        {"response_format": {"type": "json_schema", "json_schema": 3}},
        "response_format.json_schema",
    ),
    "a wrong schema": (
        {"response_format": json_schema({"properties": {"x": {"type": "nonsense"}}})},
        "response_format.json_schema.schema.properties.x",
    ),
    "a wrong regex": ({"regex": "("}, "regex"),
    "a wrong grammar": ({"grammar": "root ::= nothing"}, "grammar"),
    "two constraints": ({"regex": "a", "response_format": json_schema(PERSON)}, "regex"),
    "two in one": ({"structured_outputs": {"regex": "a", "json": {}}}, "structured_outputs"),
    "none in one": ({"structured_outputs": {}}, "structured_outputs"),
    "whitespace": (
        {"structured_outputs": {"json": PERSON, "whitespace_pattern": " "}},
        "structured_outputs.whitespace_pattern",
    ),
    "guided whitespace": ({"guided_whitespace_pattern": " "}, "guided_whitespace_pattern"),
    "an unknown guide": ({"guided_magic": "x"}, "guided_magic"),
    "extra_body": ({"extra_body": {"regex": "a"}}, "extra_body"),
    "functions": ({"functions": [{"name": "f"}]}, "functions"),
    "a custom tool": ({"tools": [{"type": "custom", "custom": {"name": "f"}}]}, "tools[0].type"),
    "a nameless tool": ({"tools": [{"type": "function", "function": {}}]}, "tools[0]"),
    "a wrong tool": (
        {
            "tools": [
                {"type": "function", "function": {"name": "f", "parameters": {"type": "array"}}}
            ]
        },
        "tools[0].function.parameters",
    ),
    "an unknown tool": (
        {
            "tools": [{"type": "function", "function": {"name": "f"}}],
            "tool_choice": {"type": "function", "function": {"name": "g"}},
        },
        "tool_choice",
    ),
    "a tool and a regex": (
        {"tools": [{"type": "function", "function": {"name": "f"}}], "regex": "a"},
        "regex",
    ),
    "best_of": ({"best_of": 3}, "best_of"),
    "a template": ({"chat_template": "{{ messages }}"}, "chat_template"),
    "sound": ({"modalities": ["text", "audio"]}, "modalities"),
    "llama.cpp's limit": ({"n_predict": 5}, "n_predict"),
    "llama.cpp's penalty": ({"repeat_penalty": 1.1}, "repeat_penalty"),
    "no prompt for an answer": ({"add_generation_prompt": False}, "add_generation_prompt"),
    "all prompt logprobs": ({"prompt_logprobs": -1}, "prompt_logprobs"),
    "logprobs of an unknown kind": ({"logprobs": True, "logprobs_mode": "x"}, "logprobs_mode"),
    "a kind of no logprobs": ({"logprobs_mode": "raw"}, "logprobs_mode"),
    "an unknown constraint": (
        {"structured_outputs": {"json": PERSON, "max_length": 3}},
        "structured_outputs.max_length",
    ),
    "a schema that is none": ({"structured_outputs": {"json": 3}}, "structured_outputs.json"),
    "a limit beside a schema": (
        {"response_format": json_schema(PERSON), "max_completion_tokens": 0},
        "max_completion_tokens",
    ),
    "a penalty beside a schema": (
        {"response_format": json_schema(PERSON), "presence_penalty": 3},
        "presence_penalty",
    ),
    "too long": ({"messages": ASK * 3000}, "messages"),
}


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("case", list(BAD))
def test_a_bad_request_is_told_where(case: str, is_streamed: bool, server: Server) -> None:
    body, place = BAD[case]
    error = server.refused(**{**body, "stream": is_streamed})
    assert error["message"] and error["code"] and error["type"] == "invalid_request_error"
    assert place is None or (error["param"] or "").startswith(place)


def test_a_wrong_schema_is_told_in_the_words_that_users_search_for(server: Server) -> None:
    form = json_schema({"properties": {"x": {"type": "nonsense"}}}, name="Thing")
    error = server.refused(response_format=form)
    assert error["message"].startswith("Invalid schema for response_format 'Thing': ")


def test_another_model_is_not_there(server: Server) -> None:
    error = server.post("/v1/chat/completions", 404, model="other", messages=ASK)["error"]
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert server.client.get("/v1/models/other").status_code == 404


NO_JSON = [b"", b"{", b"[]", b'"x"', b'{"a": 1} x', b"\xff", b"[" * 100_000]
NO_JSON += [b'{"user": NaN}', b'{"user": [-Infinity]}', b'{"user": 1e999}', b'{"user": "\\ud800"}']
PATHS = ["v1/chat/completions", "v1/completions", "v1/responses", "tokenize", "detokenize"]


@pytest.mark.parametrize("data", NO_JSON)
@pytest.mark.parametrize("path", PATHS)
def test_what_is_no_json_object_is_a_bad_request(path: str, data: bytes, server: Server) -> None:
    answer = server.client.post(f"/{path}", content=data)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] in ("invalid_json", "invalid_type")


def test_parts_of_items_that_are_no_parts_are_told_where(server: Server) -> None:
    for item, place in (
        ({"type": "reasoning", "summary": [["x"]]}, "input[0].summary[0].type"),
        ({"type": "reasoning", "content": 3}, "input[0].content"),
        ({"role": "assistant", "tool_calls": 3}, "input[0].tool_calls"),
        ({"role": "user", "content": {"text": "x"}}, "input[0].content"),
    ):
        assert server.refused("/v1/responses", input=[item])["param"] == place
    assert server.refused("/tokenize", messages=[{"role": "robot"}])["param"] == "messages[0]"
    assert server.refused("/tokenize", prompt=3)["param"] == "prompt"


def test_unknown_paths_and_methods_have_the_same_shape(server: Server) -> None:
    for answer, status in (
        (server.client.get("/v1/nothing"), 404),
        (server.client.get("/v1/chat/completions"), 405),
    ):
        assert answer.status_code == status and answer.json()["error"]["message"]


def test_every_answer_has_a_request_id_and_keeps_that_of_the_client(server: Server) -> None:
    assert server.client.get("/v1/models").headers["x-request-id"].startswith("req_")
    told = server.client.post("/v1/completions", json={}, headers={"x-request-id": "mine"})
    assert told.status_code == 400 and told.headers["x-request-id"] == "mine"


def test_a_key_is_asked_for(llm: LLM) -> None:
    with serve(llm, api_keys=("one", "two")) as client:
        for header in ("", "Bearer", "Bearer three", "Basic one", "one"):
            answer = client.get("/v1/models", headers={"authorization": header})
            assert answer.status_code == 401
            assert answer.json()["error"]["code"] == "invalid_api_key"
        for key in ("one", "two"):
            headers = {"authorization": f"Bearer {key}"}
            assert client.get("/v1/models", headers=headers).status_code == 200
        assert client.get("/health").status_code == 200


def test_a_body_that_is_too_large_is_not_read(llm: LLM) -> None:
    with serve(llm, max_body_bytes=1000) as client:
        answer = client.post("/v1/completions", json={"prompt": "x" * 2000})
    assert answer.status_code == 413 and answer.json()["error"]["code"] == "body_too_large"


def test_a_schema_that_is_too_large_is_refused(llm: LLM) -> None:
    with serve(llm, max_schema_bytes=100) as client:
        form = json_schema({"enum": ["x" * 200]})
        body = {"model": MODEL, "messages": ASK, "response_format": form}
        answer = client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 400 and answer.json()["error"]["code"] == "schema_too_large"
