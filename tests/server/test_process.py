"""`structspec serve` as a process: slow clients, hundreds of streams, and being told to stop."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from structspec import Client, GrammarError, Truncated
from tests.server.toy import ToyServer, save_toy, toy_server

FREE = {"messages": [{"role": "user", "content": "?"}], "temperature": 1, "ignore_eos": True}
DIGITS = {**FREE, "ignore_eos": False, "regex": "[0-9]{30}"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_toy(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module")
def toy(folder: Path) -> Iterator[ToyServer]:
    with toy_server(folder, "--body-timeout-seconds", "1") as server:
        yield server


def chat(url: str) -> str:
    return f"{url}/v1/chat/completions"


def read_stream(url: str, body: dict[str, Any], heard: threading.Event) -> list[str]:
    lines = []
    with httpx2.stream("POST", chat(url), json={**body, "stream": True}, timeout=60) as answer:
        for line in answer.iter_lines():
            if line:
                lines.append(line)
            heard.set()
    return lines


def stop_during_a_stream(server: ToyServer, max_tokens: int) -> tuple[int, list[str]]:
    """The exit code, and the lines of a stream that ran when the server was told to stop."""
    lines: list[str] = []
    heard = threading.Event()
    body = {**FREE, "max_tokens": max_tokens}
    reader = threading.Thread(target=lambda: lines.extend(read_stream(server.url, body, heard)))
    reader.start()
    assert heard.wait(30)
    server.process.send_signal(signal.SIGTERM)
    reader.join(60)
    return server.process.wait(30), lines


def test_a_stream_is_finished_before_the_server_ends_without_error(folder: Path) -> None:
    with toy_server(folder) as server:
        code, lines = stop_during_a_stream(server, max_tokens=300)
    assert code == 0
    assert lines[-1] == "data: [DONE]"
    assert json.loads(lines[-2].removeprefix("data: "))["choices"][0]["finish_reason"] == "length"


def test_a_stream_that_takes_too_long_to_finish_is_told_so(folder: Path) -> None:
    with toy_server(folder, "--drain-seconds", "0") as server:
        code, lines = stop_during_a_stream(server, max_tokens=1900)
    assert code == 0
    assert json.loads(lines[-1].removeprefix("data: "))["error"]["code"] == "cancelled"


def test_two_hundred_streams_at_once_all_end_well(toy: ToyServer) -> None:
    async def read(http: httpx2.AsyncClient, seed: int) -> str:
        body = {**DIGITS, "seed": seed, "stream": True}
        said = ""
        async with http.stream("POST", chat(toy.url), json=body) as answer:
            assert answer.status_code == 200
            async for line in answer.aiter_lines():
                if line.startswith("data: {"):
                    for choice in json.loads(line.removeprefix("data: "))["choices"]:
                        said += choice["delta"].get("content") or ""
        assert line == "" or line == "data: [DONE]"
        return said

    async def read_all() -> list[str]:
        limits = httpx2.Limits(max_connections=200)
        async with httpx2.AsyncClient(timeout=120, limits=limits) as http:
            return await asyncio.gather(*(read(http, seed) for seed in range(200)))

    texts = asyncio.run(read_all())
    assert all(len(text) == 30 and text.isdecimal() for text in texts)
    assert len(set(texts)) > 100


def test_a_body_that_does_not_come_is_not_waited_for(toy: ToyServer) -> None:
    url = httpx2.URL(toy.url)
    with socket.create_connection((url.host, url.port), timeout=30) as connection:
        head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{"
        connection.sendall(head.encode())
        answer = b""
        while part := connection.recv(4096):
            answer += part
    assert answer.startswith(b"HTTP/1.1 408") and b"body_too_slow" in answer


def test_one_connection_serves_request_after_request(toy: ToyServer) -> None:
    with httpx2.Client(limits=httpx2.Limits(max_connections=1)) as http:
        for _ in range(20):
            assert http.get(f"{toy.url}/v1/models").status_code == 200
            assert http.post(chat(toy.url), content=b"{").status_code == 400
        assert http.head(f"{toy.url}/health").status_code == 200
        wrong = http.options(chat(toy.url))
        assert wrong.status_code == 405 and wrong.headers["allow"] == "POST"


def test_any_script_passes_through_whole(toy: ToyServer) -> None:
    text = "né 漢字 🎉 \u0000"
    body = {**FREE, "messages": [{"role": "user", "content": text}], "ignore_eos": False}
    choices = [text, "x"]
    answer = httpx2.post(
        chat(toy.url), json={**body, "structured_outputs": {"choice": choices}}, timeout=30
    )
    assert answer.json()["choices"][0]["message"]["content"] in choices


def test_what_clients_leave_behind_is_freed(toy: ToyServer) -> None:
    for _ in range(5):
        with httpx2.stream(
            "POST", chat(toy.url), json={**FREE, "max_tokens": 1900, "stream": True}, timeout=30
        ) as answer:
            next(answer.iter_lines())
    for _ in range(200):
        if "num_requests_running{" in (text := httpx2.get(f"{toy.url}/metrics").text) and (
            'num_requests_running{model_name="toy"} 0' in text
        ):
            break
    assert 'kv_cache_usage_perc{model_name="toy"} 0' in text


def test_the_client_speaks_with_the_server(toy: ToyServer) -> None:
    with Client(toy.url) as client:
        assert client.generate("?", regex="[0-9]{4}", temperature=1).isdecimal()
        assert client.generate("?", choices=["yes", "no"]) in ("yes", "no")
        flags = {"type": "array", "items": {"type": "boolean"}, "maxItems": 3}
        values = client.generate(["a", "b"], schema=flags, n=2, temperature=1)
        assert [len(of_prompt) for of_prompt in values] == [2, 2]
        assert "".join(client.stream("?", regex="[ab]{9}")).strip("ab") == ""
        with pytest.raises(GrammarError) as caught:
            client.generate("?", schema={"properties": {"x": {"type": "int"}}})
        assert caught.value.pointer == "#/properties/x/type"
        with pytest.raises(Truncated) as cut:
            client.generate("?", schema={"type": "string", "minLength": 9}, max_tokens=3)
        assert cut.value.usage is not None and cut.value.usage.completion_tokens == 3
