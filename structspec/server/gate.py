"""Who gets in, and how much at a time."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from collections.abc import AsyncIterator, Iterator

from starlette.requests import ClientDisconnect, Request

from structspec.server.errors import ApiError
from structspec.server.settings import ServerSettings

_RETRY_S = 1


class Gate:
    """Keys, body sizes and the number of requests at a time; used by one event loop."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._num_inside = 0

    @property
    def num_inside(self) -> int:
        """How many requests are being answered."""
        return self._num_inside

    def check_key(self, request: Request) -> None:
        """Raise where keys are asked for and the request has none of them."""
        keys = self._settings.api_keys
        if not keys:
            return
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        # all are compared, in constant time: how long it takes says nothing about them
        matches = [hmac.compare_digest(given.encode(), key.encode()) for key in keys]
        if kind.lower() != "bearer" or not any(matches):
            raise ApiError(401, "incorrect API key provided", code="invalid_api_key")

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Count a request while it is answered; raises where there are too many."""
        retry = {"retry-after": str(_RETRY_S)}
        if self._num_inside >= self._settings.max_requests:
            raise ApiError(
                429,
                f"{self._num_inside} requests are being answered; try again in {_RETRY_S} s",
                code="queue_full",
                headers=retry,
            )
        self._num_inside += 1
        try:
            yield
        finally:
            self._num_inside -= 1

    async def read(self, request: Request) -> bytes:
        """A request's body; raises where it is too slow, or too large, before all was read."""
        limit_s = self._settings.body_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                return await self._read(request)
        except TimeoutError:
            raise ApiError(
                408,
                f"the body has not come within {limit_s} s",
                code="body_too_slow",
                headers={"connection": "close"},
            ) from None
        except ClientDisconnect:
            raise ApiError(400, "the client went away", code="disconnected") from None

    async def _read(self, request: Request) -> bytes:
        data = bytearray()
        limit = self._settings.max_body_bytes
        async for part in request.stream():
            data += part
            if len(data) > limit:
                raise ApiError(413, f"the body is larger than {limit} bytes", code="body_too_large")
        return bytes(data)


@contextlib.asynccontextmanager
async def cancelled_with_client(request: Request) -> AsyncIterator[None]:
    """Cancel what is done within when the client closes its connection."""
    task = asyncio.current_task()
    assert task is not None
    has_left = False

    async def watch() -> None:
        nonlocal has_left
        while (await request.receive())["type"] != "http.disconnect":
            pass
        has_left = True
        task.cancel()

    watcher = asyncio.create_task(watch())
    try:
        yield
    except asyncio.CancelledError:
        if not has_left:
            raise
        task.uncancel()
        raise ApiError(400, "the client went away", code="disconnected") from None
    finally:
        watcher.cancel()
