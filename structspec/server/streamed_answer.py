"""An answer in pieces, which gives up what it holds whenever its client has gone."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from structspec.server.sse import HEADERS


class StreamedAnswer(StreamingResponse):
    """Server-sent events: the first piece, and those to come.

    Its request is at its end, and `inside` closed, when it was sent; or when the client is not
    there any more, though nobody may have asked for a piece by then.
    """

    def __init__(
        self, first: bytes, pieces: AsyncIterator[bytes], inside: contextlib.ExitStack
    ) -> None:
        self._pieces, self._inside = pieces, inside
        super().__init__(_all(first, pieces), headers=HEADERS, media_type="text/event-stream")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        with self._inside:
            try:
                await super().__call__(scope, receive, send)
            finally:
                await self._pieces.aclose()  # type: ignore[attr-defined]


async def _all(first: bytes, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in pieces:
        yield piece
