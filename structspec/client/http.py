"""HTTP for a client: steps carried out with httpx2, in whichever event loop asks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, TypeVar

from structspec.client.exchange import UNREACHED, Answer, Ask, Steps
from structspec.client.settings import ClientSettings
from structspec.errors import InvalidRequest, ServerError

V = TypeVar("V")


class Http:
    """Sends what steps ask for, and reads streams."""

    def __init__(self, settings: ClientSettings, client: Any = None) -> None:
        """`client` is an httpx2.AsyncClient of the caller's."""
        self._httpx = load_httpx()
        self._settings = settings
        if client is not None and not isinstance(client, self._httpx.AsyncClient):
            raise InvalidRequest(
                f"http_client must be an httpx2.AsyncClient, for Client too, not {client!r}"
            )
        self._client = client or self._httpx.AsyncClient(
            timeout=self._httpx.Timeout(settings.timeout_s, connect=10.0),
            limits=self._httpx.Limits(max_connections=settings.max_concurrency),
        )

    async def carry_out(self, steps: Steps[V]) -> V:
        """What steps come to."""
        answer: Answer | None = None
        try:
            while True:
                step = steps.send(answer)
                if isinstance(step, Ask):
                    answer = await self._ask(step)
                else:
                    answer = None
                    await asyncio.sleep(step.seconds)
        except StopIteration as done:
            value: V = done.value
            return value

    async def read(self, answer: Answer) -> AsyncGenerator[bytes]:
        """The bytes of a streamed answer; the connection is free once this is closed."""
        try:
            async for part in answer.stream.aiter_bytes():
                yield part
        except self._httpx.TransportError as error:
            raise ServerError(f"the server's stream broke off: {error!r}") from error
        finally:
            await answer.stream.aclose()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _ask(self, request: Ask) -> Answer:
        sent = self._client.build_request(
            request.method,
            self._settings.url(request.path),
            json=request.body,
            headers=self._settings.headers,
        )
        try:
            response = await self._client.send(sent, stream=request.is_streamed)
            is_left = request.is_streamed and response.is_success
            if request.is_streamed and not is_left:
                await response.aread()
                await response.aclose()
        except self._httpx.TransportError as error:
            return Answer(UNREACHED, repr(error))
        text = "" if is_left else response.text
        return Answer(response.status_code, text, response.headers, response if is_left else None)


def load_httpx() -> Any:
    """The HTTP library; raises where it is not installed."""
    try:
        import httpx2
    except ImportError:
        raise InvalidRequest("Client needs httpx2: pip install 'structspec-sdk[client]'") from None
    return httpx2
