"""What runs the calls of a chat model: an engine in this process, or a server elsewhere."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from structspec.chat.engines import Engine
from structspec.chat.shared_llm import shared_llm
from structspec.client.sync_client import Client
from structspec.config import EngineConfig
from structspec.errors import InvalidRequest
from structspec.models.loading import DType
from structspec.runner import Runner
from structspec.service import Service


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Where calls are to run."""

    engine: Engine | None
    model: str | None
    base_url: str | None
    api_key: str | None
    timeout_s: float | None
    max_retries: int | None
    dtype: DType
    device: str
    config: EngineConfig | None


class Engines:
    """The engines of one chat model, made when they are first needed; thread-safe.

    Copies of the model share them, and pickling leaves them out.
    """

    def __init__(self) -> None:
        self._made: dict[str | None, Engine] = {}
        self._making = threading.Lock()

    def runner(self, settings: EngineSettings, model: str | None) -> Runner:
        """What runs a call to this model, the settings' own where it is None.

        Raises InvalidRequest, ModelError and ServerError.
        """
        return self._engine(settings, model)._service

    def local(self, settings: EngineSettings) -> Service | None:
        """The service in this process, if it is there already."""
        engine = settings.engine or self._made.get(settings.model)
        return None if engine is None or isinstance(engine, Client) else engine._service

    def _engine(self, settings: EngineSettings, model: str | None) -> Engine:
        name = model or settings.model
        if settings.engine is not None:
            if name != settings.model:
                raise InvalidRequest(
                    f"engine= runs {settings.model!r}, no model {name!r}: leave engine= out to"
                    " have models loaded by name"
                )
            return settings.engine
        with self._making:
            if name not in self._made:
                self._made[name] = _make(settings, name)
            return self._made[name]

    def __deepcopy__(self, memo: dict[int, Any]) -> Engines:
        return self

    def __reduce__(self) -> tuple[type[Engines], tuple[()]]:
        return Engines, ()


def _make(settings: EngineSettings, model: str | None) -> Engine:
    if settings.base_url is None:
        if model is None:
            raise InvalidRequest(
                "ChatStructSpec needs model=, a server as base_url=, or engine=LLM(...)"
            )
        return shared_llm(
            model, dtype=settings.dtype, device=settings.device, config=settings.config
        )
    given = {"timeout_s": settings.timeout_s, "max_retries": settings.max_retries}
    wanted: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return Client(settings.base_url, settings.api_key, model, **wanted)
