"""An answer in pieces, which gives up what it holds whenever its client has gone."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from structspec.server.gate import cancelled_with_client
from structspec.server.sse import HEADERS


class StreamedAnswer(Response):
    """Server-sent events: the first piece, and those to come.

    Its request is at its end, and `inside` closed, when it was sent; or when the client is not
    there any more, though nobody may have asked for a piece by then.
    """

    media_type = "text/event-stream"

    def __init__(
        self, first: bytes, pieces: AsyncGenerator[bytes], inside: contextlib.ExitStack
    ) -> None:
        self._first, self._pieces, self._inside = first, pieces, inside
        self.status_code, self.background = 200, None
        self.init_headers(HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        with self._inside:
            async with contextlib.aclosing(self._pieces):
                with contextlib.suppress(ClientDisconnect):
                    async with cancelled_with_client(receive):
                        await self._send_all(send)

    async def _send_all(self, send: Send) -> None:
        head = {"status": self.status_code, "headers": self.raw_headers}
        await send({"type": "http.response.start", **head})
        await send(_body(self._first))
        async for piece in self._pieces:
            await send(_body(piece))
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _body(piece: bytes) -> dict[str, object]:
    return {"type": "http.response.body", "body": piece, "more_body": True}
