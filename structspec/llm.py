"""LLM: prompts in, validated values out."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from structspec.calls import Calls
from structspec.config import EngineConfig
from structspec.hooks import Hook, HookName
from structspec.metrics import Metrics
from structspec.models.loading import DType
from structspec.service import Service


class LLM(Calls):
    """A language model in this process whose output is what you ask for; thread-safe.

    `model` is a known name ("smollm2-135m"), a `.gguf` file, a folder with `config.json`,
    safetensors and tokenizer, or a hub id. Calls from several threads are batched together; a child
    made by `os.fork` must make its own, for threads do not follow it.

    `device` "auto" is a GPU if torch finds one, else the CPU; `dtype` "auto" is bfloat16 on a GPU,
    float32 on the CPU. On a GPU the engine takes most of the memory (`gpu_memory_utilization` of
    EngineConfig), and its kernels need some seconds to get ready.

    `hooks` are functions that are told what becomes of requests, as {"done": print}: see
    structspec.hooks.

    Errors are StructspecErrors: InvalidRequest and GrammarError for what was asked,
    GenerationError, with the text and usage there are, for what came of it.
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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
