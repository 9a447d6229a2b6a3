"""Client: the calls of LLM, answered by a server elsewhere."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from structspec.calls import Calls
from structspec.client.http import Http
from structspec.client.loops import OwnLoop
from structspec.client.remote_service import RemoteService
from structspec.client.settings import ClientSettings
from structspec.hooks import Hook, HookName


class Client(Calls):
    """The calls of LLM over a server with OpenAI's chat completions; thread-safe.

    The server is asked once what it is: structspec itself, vLLM, SGLang, llama.cpp, OpenAI, or
    something else. Constraints are sent as it knows them, and finished output is validated whatever
    it promises. `on_unsupported` says what becomes of a constraint it has no words for. Without a
    `model` it must serve a single one. `timeout_s` is how long to wait for more of an answer; what
    may pass is tried again up to `max_retries` times. At most `max_concurrency` requests are made
    at a time, however many prompts there are. `http_client` is an `httpx2.AsyncClient`, which is
    this client's from then on. `hooks` are those of LLM; `compiled` is never told.

    Errors are those of LLM, and ServerError where the server cannot be reached or fails.
    """

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
        http, loop = Http(settings, http_client), OwnLoop()
        self._service = RemoteService(settings, model, http, loop, hooks)
        self._finalizer = weakref.finalize(self, loop.close, http.close)

    def close(self) -> None:
        """Cancel what runs and close the connections; calling it again does nothing."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
