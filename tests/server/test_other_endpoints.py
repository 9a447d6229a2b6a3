"""Completions, models, tokens, health and metrics; and what happens when clients leave."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time

import pytest

from structspec import LLM
from structspec.server.app import make_app
from structspec.server.settings import ServerSettings
from tests.server.conftest import ASK, MODEL, PERSON, SCOPE, Server, json_schema, serve


def test_completions_write_on_behind_any_kind_of_prompt(server: Server) -> None:
    tokens = server.post("/tokenize", prompt="1, 2, 3,")["tokens"]
    given = {"max_tokens": 6, "temperature": 0}
    (text,) = [
        c["text"] for c in server.post("/v1/completions", prompt="1, 2, 3,", **given)["choices"]
    ]
    assert text
    for prompt, count in (
        (["1, 2, 3,"] * 2, 2),
        (tokens, 1),
        ([tokens, tokens], 2),
    ):
        answer = server.post("/v1/completions", prompt=prompt, **given)
        assert answer["object"] == "text_completion"
        assert [choice["index"] for choice in answer["choices"]] == list(range(count))
        assert {choice["text"] for choice in answer["choices"]} == {text}
    chunks = server.stream("/v1/completions", prompt="1, 2, 3,", **given)
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == text
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"


def test_completions_hold_constraints_and_tell_logprobs(server: Server) -> None:
    answer = server.post(
        "/v1/completions", prompt="Date:", regex="[0-9]{4}", logprobs=2, temperature=0
    )
    (choice,) = answer["choices"]
    assert re.fullmatch("[0-9]{4}", choice["text"]) and choice["finish_reason"] == "stop"
    columns = choice["logprobs"]
    assert "".join(columns["tokens"]) == choice["text"]
    assert columns["text_offset"][0] == 0 and len(columns["token_logprobs"]) == len(
        columns["tokens"]
    )


def test_bad_completions_are_refused(server: Server) -> None:
    for body in (
        {"prompt": ""},
        {"prompt": []},
        {"prompt": [-1]},
        {"prompt": [10**9]},
        {"prompt": "x", "echo": True},
        {"prompt": "x", "suffix": "y"},
        {"prompt": "x", "best_of": 2},
    ):
        assert server.refused("/v1/completions", **body)["message"]
    told = server.refused("/v1/completions", prompt="x " * 9000)
    assert (told["param"], told["code"]) == ("prompt", "context_length_exceeded")


def test_the_model_is_listed(server: Server) -> None:
    (model,) = server.client.get("/v1/models").json()["data"]
    assert (model["id"], model["object"]) == (MODEL, "model") and model["max_model_len"] > 1000
    assert server.client.get(f"/v1/models/{MODEL}").json() == model


def test_text_becomes_tokens_and_text_again(server: Server) -> None:
    text = "Ada <|im_end|> 日本"
    tokens = server.post("/tokenize", prompt=text)
    assert tokens["count"] == len(tokens["tokens"])
    assert server.post("/detokenize", tokens=tokens["tokens"])["prompt"] == text
    assert server.post("/tokenize", messages=ASK)["count"] > 10
    assert server.refused("/detokenize", tokens=[-1])["param"] == "tokens"
    assert server.refused("/tokenize", text="x")["param"] == "prompt"


def test_health_and_metrics_are_there(server: Server) -> None:
    assert server.client.get("/health").status_code == 200
    assert server.client.get("/ready").status_code == 200
    text = server.client.get("/metrics").text
    assert re.search(
        r'^structspec:generation_tokens_total\{model_name="smollm2-135m"\} [1-9]', text, re.M
    )


def test_more_requests_than_allowed_are_told_to_come_again(llm: LLM) -> None:
    body = {"model": MODEL, "messages": ASK, "max_tokens": 200, "ignore_eos": True}
    statuses: list[int] = []
    with serve(llm, max_requests=1) as client:

        def ask() -> None:
            statuses.append(client.post("/v1/chat/completions", json=body).status_code)

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(statuses) == [200, 429, 429]
        answer = client.post("/v1/chat/completions", json={**body, "max_tokens": 1})
        assert answer.status_code == 200  # there is room again


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_client_that_leaves_frees_what_its_request_held(is_streamed: bool, llm: LLM) -> None:
    app = make_app(llm._service, ServerSettings(MODEL))
    body = {"messages": ASK, "max_tokens": 4000, "ignore_eos": True, "stream": is_streamed}

    async def leave_early() -> None:
        left = asyncio.Event()
        sent: list[dict] = []
        given = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]

        async def receive() -> dict:
            if given:
                return given.pop()
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict) -> None:
            sent.append(message)

        served = asyncio.create_task(app({**SCOPE, "app": app}, receive, send))
        for _ in range(600):
            await asyncio.sleep(0.05)
            if llm.metrics().num_requests_running:
                break
        left.set()
        await asyncio.wait_for(served, 30)

    asyncio.run(leave_early())
    for _ in range(200):
        if not llm.metrics().num_requests_running:
            break
        time.sleep(0.05)
    assert llm.metrics().num_requests_running == 0


def test_a_poisoned_request_disturbs_nobody(server: Server) -> None:
    bad = {"type": "object", "properties": {"x": {"pattern": "("}}}
    results: list[int] = []

    def ask(schema: dict) -> None:
        body = {"model": MODEL, "messages": ASK, "response_format": json_schema(schema)}
        answer = server.client.post("/v1/chat/completions", json=body)
        results.append(answer.status_code)

    threads = [threading.Thread(target=ask, args=(s,)) for s in (PERSON, bad, PERSON, bad)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [200, 200, 400, 400]


def test_each_prompt_counts_once_however_many_outputs_it_has(server: Server) -> None:
    def prompt_tokens(prompt: str | list[str], n: int) -> int:
        body = {"prompt": prompt, "n": n, "max_tokens": 1}
        return server.post("/v1/completions", **body)["usage"]["prompt_tokens"]

    one, other = prompt_tokens("1, 2, 3,", 1), prompt_tokens("a, b,", 1)
    assert prompt_tokens("1, 2, 3,", 3) == one
    assert prompt_tokens(["1, 2, 3,", "a, b,"], 2) == one + other
