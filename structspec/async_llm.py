"""AsyncLLM: LLM for asyncio."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from structspec.async_calls import AsyncCalls
from structspec.config import EngineConfig
from structspec.hooks import Hook, HookName
from structspec.metrics import Metrics
from structspec.models.loading import DType
from structspec.service import Service


class AsyncLLM(AsyncCalls):
    """LLM for asyncio: the same calls, awaited. Cancelling a task cancels its requests.

    Making one loads the model and blocks for seconds, so a server does it before it takes requests.
    """

    _service: Service

    def __init__(
        self,
        model: str | Path,
        *,
        dtype: DType = "auto",
        device: str = "auto",
        config: EngineConfig | None = None,
        hooks: Mapping[HookName, Hook] | None = None,
    ) -> None:
        self._service = Service(model, dtype=dtype, device=device, config=config, hooks=hooks)
        # Also at interpreter exit: a thread inside torch must not outlive it.
        self._finalizer = weakref.finalize(self, self._service.close)

    def metrics(self) -> Metrics:
        """What the engine has done since it was built; costs it nothing, and closed ones tell."""
        return self._service.metrics()

    def close(self) -> None:
        """Cancel what runs and free the engine's threads; calling it again does nothing."""
        self._finalizer()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
