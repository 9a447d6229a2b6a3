"""Clients that leave before anything was said to them: nothing goes on being held."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from structspec import LLM
from structspec.server.app import make_app
from structspec.server.settings import ServerSettings
from structspec.server.streamed_answer import StreamedAnswer
from tests.server.conftest import ASK, MODEL, SCOPE


@pytest.mark.parametrize("spec_version", ["2.3", "2.4"])
@pytest.mark.parametrize("num_sent", [0, 1, 2])
def test_an_answer_that_nobody_hears_gives_up_what_it_holds(
    num_sent: int, spec_version: str
) -> None:
    """Whether its client left before, with or after the first piece."""
    closed: list[str] = []

    async def write() -> AsyncIterator[bytes]:
        try:
            for piece in (b"a", b"b", b"c"):
                yield piece
        finally:
            closed.append("pieces")

    async def answer() -> None:
        pieces, inside, left = write(), contextlib.ExitStack(), asyncio.Event()
        inside.callback(closed.append, "inside")
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            if num_sent:
                await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)
            if len(sent) > num_sent:
                left.set()
                raise OSError("the connection is closed")
            await asyncio.sleep(0)

        told = StreamedAnswer(await anext(pieces), pieces, inside)
        scope = {**SCOPE, "asgi": {"version": "3.0", "spec_version": spec_version}}
        with contextlib.suppress(Exception):  # of the connection, in whichever wrapping
            await told(scope, receive, send)

    asyncio.run(answer())
    assert closed == ["pieces", "inside"]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_who_leaves_at_once_makes_room_for_others(is_streamed: bool, toy: LLM) -> None:
    app = make_app(toy._service, ServerSettings(MODEL, max_requests=1))
    body = {"messages": ASK, "max_tokens": 1500, "ignore_eos": True, "stream": is_streamed}

    async def leave() -> None:
        given = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]

        async def receive() -> dict[str, Any]:
            return given.pop() if given else {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            pass

        await asyncio.wait_for(app({**SCOPE, "app": app}, receive, send), 60)

    asyncio.run(leave())
    with TestClient(app) as client:
        answer = client.post("/v1/chat/completions", json={**body, "max_tokens": 1})
    assert answer.status_code == 200
