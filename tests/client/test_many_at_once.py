"""Many requests of one client: how many at a time, what they share, and calls that run together."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from structspec import AsyncClient, Client, ServerError
from tests.client.fakes import Fake, completion
from tests.client.test_other_calls import calling


class Counting(httpx2.AsyncBaseTransport):
    """Answers after a while, and knows how many waited for it at most, and what was looked at."""

    def __init__(self) -> None:
        self.num_inside = self.most = 0
        self.looked_at: list[str] = []
        self.is_down = False

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        await asyncio.sleep(0)
        if self.is_down:
            return httpx2.Response(401, json={})
        if request.method == "GET":
            self.looked_at.append(request.url.path)
            data = [{"id": "toy", "owned_by": "vllm"}]
            return httpx2.Response(200, json={"data": data, "version": "0.33.0"})
        self.num_inside += 1
        self.most = max(self.most, self.num_inside)
        await asyncio.sleep(0.002)
        self.num_inside -= 1
        said = json.loads(await request.aread())["messages"][-1]["content"]
        return httpx2.Response(200, json=completion(said))


def test_no_more_requests_are_made_at_a_time_than_was_said() -> None:
    counting = Counting()
    http = httpx2.AsyncClient(transport=counting)
    prompts = [str(index) for index in range(40)]
    with Client("http://x", http_client=http, max_concurrency=3) as client:
        assert client.generate(prompts) == prompts
        assert client.generate_batch(prompts) == prompts
    assert counting.most == 3


def test_many_at_once_ask_what_the_server_is_only_once() -> None:
    counting = Counting()
    http = httpx2.AsyncClient(transport=counting)
    with Client("http://x", http_client=http) as client:
        client.generate(["a", "b", "c"])
        client.generate("d")
    assert counting.looked_at == ["/v1/models", "/version"]


def test_a_server_that_was_not_there_is_asked_again() -> None:
    counting = Counting()
    counting.is_down = True
    with Client("http://x", http_client=httpx2.AsyncClient(transport=counting)) as client:
        with pytest.raises(ServerError, match="key"):
            client.generate(["a", "b"])
        counting.is_down = False
        assert client.generate("a") == "a"


def test_an_awaited_client_serves_one_event_loop_after_another() -> None:
    client = AsyncClient("http://x", http_client=httpx2.AsyncClient(transport=Counting()))
    for prompts in (["a", "b"], ["c", "d"]):
        assert asyncio.run(client.generate(prompts)) == prompts  # type: ignore[arg-type]


def test_a_blocking_client_may_be_used_where_an_event_loop_runs() -> None:
    async def main() -> Any:
        http = httpx2.AsyncClient(transport=Counting())
        with Client("http://x", http_client=http) as client:
            return client.generate("a")

    assert asyncio.run(main()) == "a"


class Parts(httpx2.AsyncByteStream):
    """The bytes of a stream that goes on for ever; knows when it was closed."""

    def __init__(self, *first: str) -> None:
        self.first = first
        self.is_closed = threading.Event()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self.first:
            yield part.encode()
        await asyncio.sleep(3600)

    async def aclose(self) -> None:
        self.is_closed.set()


PIECE = 'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'
BROKEN = 'data: {"error": {"message": "gone", "code": "server_error"}}\n\n'


def streaming(parts: Parts) -> Client:
    fake = Fake("vllm")

    async def answer(request: httpx2.Request) -> httpx2.Response:
        is_get = request.method == "GET"
        return fake.answer(request) if is_get else httpx2.Response(200, stream=parts)

    http = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
    return Client(fake.base_url, http_client=http)


def test_a_stream_that_tells_of_an_error_is_closed_at_once() -> None:
    parts = Parts(PIECE, BROKEN, PIECE)
    with streaming(parts) as client:
        with pytest.raises(ServerError, match="gone") as caught:
            list(client.stream("?"))
        assert parts.is_closed.wait(30)
    assert caught.value.text == "a"


def test_a_stream_that_nobody_reads_on_is_closed_at_once() -> None:
    parts = Parts(PIECE)
    with streaming(parts) as client:
        pieces = client.stream("?")
        assert next(pieces) == "a"
        pieces.close()  # type: ignore[attr-defined]
        assert parts.is_closed.wait(30)


def test_calls_of_one_output_run_together_where_they_are_awaited() -> None:
    """Each waits for the other: one behind the other they would wait for ever."""
    met: list[str] = []

    async def meet(name: str) -> str:
        met.append(name)
        async with asyncio.timeout(30):
            while len(met) < 2:
                await asyncio.sleep(0)
        return f"{name} was there"

    fake = Fake("vllm", calling("meet", '{"name": "a"}', '{"name": "b"}'), "both")

    async def answer(request: httpx2.Request) -> httpx2.Response:
        return fake.answer(request)

    async def main() -> None:
        http = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
        async with AsyncClient(fake.base_url, http_client=http) as client:
            run = await client.run_tools("?", [meet])
        results = [one["content"] for one in run.messages if one["role"] == "tool"]
        assert results == ["a was there", "b was there"]

    asyncio.run(main())
