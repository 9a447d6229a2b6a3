"""Servers that are none: they tell what they are as the real ones do, and say what is put in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx2

from structspec import AsyncClient, Client

BASE = "http://somewhere:8000/v1"
PAGES: dict[str, dict[str, Any]] = {  # what each kind of server answers to a GET
    "structspec": {"/v1/models": "structspec"},
    "vllm": {"/v1/models": "vllm", "/version": {"version": "0.33.0"}},
    "old vllm": {"/v1/models": "vllm", "/version": {"version": "0.10.1"}},
    "sglang": {"/v1/models": "sglang"},
    "llama.cpp": {"/v1/models": "llamacpp"},
    "other": {"/v1/models": "library"},
}


class Lines(str):
    """What a stream consists of, as it is."""


class Fake:
    """One server; `says` are its answers in turn, the last one for ever: text, (status, body) …"""

    def __init__(self, kind: str, *says: Any, pages: dict[str, Any] | None = None) -> None:
        self.base_url = "https://api.openai.com" if kind == "openai" else BASE
        self.pages = PAGES.get(kind, {}) if pages is None else pages
        self.says = list(says) or ["hello"]
        self.bodies: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []

    @property
    def body(self) -> dict[str, Any]:
        """What the only call was."""
        (body,) = self.bodies
        return body

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(request.url.path)
        self.headers.append(dict(request.headers))
        if request.method == "GET":
            return self._page(request.url.path)
        assert request.url.path == "/v1/chat/completions"
        self.bodies.append(json.loads(request.content))
        said = self.says.pop(0) if len(self.says) > 1 else self.says[0]
        if isinstance(said, Exception):
            raise said
        if isinstance(said, tuple):
            status, body, *headers = said
            return httpx2.Response(status, json=body, headers=headers[0] if headers else None)
        if isinstance(said, Lines):
            return httpx2.Response(200, content=said)
        if self.bodies[-1].get("stream"):
            return httpx2.Response(200, content="".join(events(said)))
        return httpx2.Response(200, json=completion(said))

    def _page(self, path: str) -> httpx2.Response:
        page = self.pages.get(path)
        if page is None:
            return httpx2.Response(404, json={"detail": "Not Found"})
        if isinstance(page, str):
            page = {"object": "list", "data": [{"id": "toy", "owned_by": page}]}
        return httpx2.Response(200, json=page)


def completion(said: Any) -> dict[str, Any]:
    """A whole answer: a text, or a message with what stands beside it."""
    message = {"content": said} if isinstance(said, str) else dict(said)
    reason = message.pop("finish_reason", "stop")
    usage = {"prompt_tokens": 7, "completion_tokens": 3}
    return {"choices": [{"message": message, "finish_reason": reason}], "usage": usage}


def events(text: str) -> Iterator[str]:
    """A streamed answer, a character at a time."""
    for character in text:
        yield _event({"choices": [{"delta": {"content": character}, "finish_reason": None}]})
    yield ": ping\n\n"
    yield _event({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    yield _event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}})
    yield "data: [DONE]\n\n"


def _event(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data)}\n\n"


class Blocking:
    """Calls through Client."""

    def __init__(self, fake: Fake, **settings: Any) -> None:
        self.client = Client(fake.base_url, http_client=_http(fake), **_settings(fake, settings))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """A call by its name; streams come as lists."""

        def call(*args: Any, **options: Any) -> Any:
            given = getattr(self.client, name)(*args, **options)
            return list(given) if name.startswith("stream") else given

        return call


class Awaited:
    """The same calls through AsyncClient."""

    def __init__(self, fake: Fake, **settings: Any) -> None:
        http = _http(fake)
        self.client = AsyncClient(fake.base_url, http_client=http, **_settings(fake, settings))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """A call by its name; streams come as lists."""

        async def read(*args: Any, **options: Any) -> list[Any]:
            return [part async for part in getattr(self.client, name)(*args, **options)]

        async def call(*args: Any, **options: Any) -> Any:
            return await getattr(self.client, name)(*args, **options)

        made = read if name.startswith("stream") else call
        return lambda *args, **options: asyncio.run(made(*args, **options))


def _http(fake: Fake) -> httpx2.AsyncClient:
    async def answer(request: httpx2.Request) -> httpx2.Response:
        return fake.answer(request)

    return httpx2.AsyncClient(transport=httpx2.MockTransport(answer))


def _settings(fake: Fake, settings: dict[str, Any]) -> dict[str, Any]:
    return {"model": "toy", **settings} if "openai" in fake.base_url else settings


Connect = Callable[..., Blocking | Awaited]
