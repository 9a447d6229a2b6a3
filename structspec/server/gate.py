"""Who gets in, and how much at a time."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from collections.abc import AsyncIterator, Iterator

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive

from structspec.chat.fields import refuse
from structspec.server.errors import ApiError
from structspec.server.settings import ServerSettings

_RETRY_S = 1


class Gate:
    """Keys, body sizes, and how many choices are written at a time; used by one event loop."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._num_inside = 0  # choices
        self._num_bytes = 0  # of bodies that are being read, or whose requests are answered

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
    def entered(self, num_choices: int) -> Iterator[None]:
        """Count choices while they are written; raises where there are too many."""
        limit = self._settings.max_requests
        if num_choices > limit:
            raise refuse(
                f"this asks for {num_choices} choices, and at most {limit} are written", "n"
            )
        if self._num_inside + num_choices > limit:
            raise _busy(f"{self._num_inside} choices are being written")
        self._num_inside += num_choices
        try:
            yield
        finally:
            self._num_inside -= num_choices

    @contextlib.contextmanager
    def holding(self, num_bytes: int) -> Iterator[None]:
        """Count a body while its request is answered; raises where all are too large together."""
        if self._num_bytes + num_bytes > self._settings.max_total_body_bytes:
            raise _busy(f"requests of {self._num_bytes} bytes are being answered")
        self._num_bytes += num_bytes
        try:
            yield
        finally:
            self._num_bytes -= num_bytes

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

    async def _read(self, request: Request) -> bytes:
        data = bytearray()
        limit = self._settings.max_body_bytes
        with contextlib.ExitStack() as held:
            async for part in request.stream():
                if len(data) + len(part) > limit:
                    message = f"the body is larger than {limit} bytes"
                    raise ApiError(413, message, code="body_too_large")
                held.enter_context(self.holding(len(part)))
                data += part
        return bytes(data)


def _busy(why: str) -> ApiError:
    """Too much is asked for at the moment: 429."""
    return ApiError(
        429,
        f"{why}; try again in {_RETRY_S} s",
        code="queue_full",
        headers={"retry-after": str(_RETRY_S)},
    )


@contextlib.asynccontextmanager
async def cancelled_with_client(receive: Receive) -> AsyncIterator[None]:
    """Cancel what is done within when the client closes its connection: ClientDisconnect."""
    task = asyncio.current_task()
    assert task is not None
    has_left = False

    async def watch() -> None:
        nonlocal has_left
        while (await receive())["type"] != "http.disconnect":
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
        raise ClientDisconnect from None
    finally:
        watcher.cancel()
