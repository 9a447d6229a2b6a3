"""AsyncClient: Client for asyncio."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from structspec.async_calls import AsyncCalls
from structspec.client.http import Http
from structspec.client.loops import CallersLoop
from structspec.client.remote_service import RemoteService
from structspec.client.settings import ClientSettings
from structspec.hooks import Hook, HookName


class AsyncClient(AsyncCalls):
    """Client for asyncio: the same calls, awaited. Cancelling a task closes its connections."""

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        model: str | None = None,
        *,
        timeout_s: float = 600.0,
        max_retries: int = 2,
        max_concurrency: int = 64,
        http_client: Any = None,
        hooks: Mapping[HookName, Hook] | None = None,
    ) -> None:
        settings = ClientSettings(base_url, api_key, timeout_s, max_retries, max_concurrency)
        self._http, self._loop = Http(settings, http_client), CallersLoop()
        self._service = RemoteService(settings, model, self._http, self._loop, hooks)

    async def close(self) -> None:
        """Cancel what runs and close the connections."""
        await self._loop.close()
        await self._http.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
