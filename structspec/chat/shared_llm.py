"""One engine for all who ask for the same model."""

from __future__ import annotations

import threading
import weakref
from pathlib import Path

from structspec.config import EngineConfig
from structspec.llm import LLM
from structspec.models.loading import DType

_Key = tuple[str, DType, str, EngineConfig | None]

_LOADED: weakref.WeakValueDictionary[_Key, LLM] = weakref.WeakValueDictionary()
_LOADING = threading.Lock()


def shared_llm(
    model: str | Path,
    *,
    dtype: DType = "auto",
    device: str = "auto",
    config: EngineConfig | None = None,
) -> LLM:
    """The LLM of a model and a configuration, loaded once for all who hold it; thread-safe.

    It ends with the last of them. Nobody may close it.
    """
    key = (str(model), dtype, device, config)
    with _LOADING:
        llm = _LOADED.get(key)
        if llm is None or not llm._service.is_alive:
            llm = _LOADED[key] = LLM(model, dtype=dtype, device=device, config=config)
        return llm
