"""AsyncLLM: LLM for asyncio."""

# As in structspec.llm: where both overloads fit, the first, for one prompt, is meant.
# mypy: disable-error-code="overload-overlap"

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack, overload

from structspec.config import EngineConfig
from structspec.engine.loop import News
from structspec.errors import GenerationError
from structspec.generation import Generation
from structspec.llm import result_of, tell_when_finished
from structspec.metrics import Metrics
from structspec.models.loading import DType
from structspec.options import GenerateOptions, OtherOptions, Task, check_n, resolve_options
from structspec.partial_values import PartialItems, PartialValues
from structspec.prompts import Prompt, Prompts, split_prompts
from structspec.results import OnResult, Result, all_or_raise, arranged, texts_of
from structspec.service import Service

T = TypeVar("T")
V = TypeVar("V")


class AsyncLLM:
    """LLM for asyncio: the same calls, awaited. Cancelling a task cancels its requests.

    Making one loads the model and blocks for seconds, so a server does it before it takes requests.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        dtype: DType = "auto",
        device: str = "auto",
        config: EngineConfig | None = None,
    ) -> None:
        self._service = Service(model, dtype=dtype, device=device, config=config)
        # Also at interpreter exit: a thread inside torch must not outlive it.
        self._finalizer = weakref.finalize(self, self._service.close)

    @overload
    async def generate(
        self, prompt: Prompt, *, schema: type[T], **options: Unpack[OtherOptions]
    ) -> T: ...
    @overload
    async def generate(
        self, prompt: Sequence[Prompt], *, schema: type[T], **options: Unpack[OtherOptions]
    ) -> list[T]: ...
    @overload
    async def generate(
        self, prompt: Prompt, *, schema: None = None, **options: Unpack[OtherOptions]
    ) -> str: ...
    @overload
    async def generate(
        self, prompt: Sequence[Prompt], *, schema: None = None, **options: Unpack[OtherOptions]
    ) -> list[str]: ...
    @overload
    async def generate(
        self, prompt: Prompt, *, schema: type[T], n: int, **options: Unpack[OtherOptions]
    ) -> list[T]: ...
    @overload
    async def generate(
        self, prompt: Sequence[Prompt], *, schema: type[T], n: int, **options: Unpack[OtherOptions]
    ) -> list[list[T]]: ...
    @overload
    async def generate(
        self, prompt: Prompt, *, schema: None = None, n: int, **options: Unpack[OtherOptions]
    ) -> list[str]: ...
    @overload
    async def generate(
        self,
        prompt: Sequence[Prompt],
        *,
        schema: None = None,
        n: int,
        **options: Unpack[OtherOptions],
    ) -> list[list[str]]: ...
    @overload
    async def generate(
        self, prompt: Prompts, *, schema: Any, n: int | None = None, **options: Unpack[OtherOptions]
    ) -> Any: ...
    async def generate(
        self, prompt: Prompts, *, n: int | None = None, **options: Unpack[GenerateOptions]
    ) -> Any:
        """As LLM.generate."""
        check_n(n)
        task = resolve_options(options)
        prompts, is_batch = split_prompts(prompt)
        results = all_or_raise(await self._run(prompts, task, None, n))
        return arranged([one.value for one in results], n, is_batch=is_batch)

    @overload
    async def generate_raw(
        self,
        prompt: Prompt,
        *,
        on_result: OnResult | None = None,
        return_errors: Literal[False] = False,
        **options: Unpack[GenerateOptions],
    ) -> Generation: ...
    @overload
    async def generate_raw(
        self,
        prompt: Sequence[Prompt],
        *,
        on_result: OnResult | None = None,
        return_errors: Literal[False] = False,
        **options: Unpack[GenerateOptions],
    ) -> list[Generation]: ...
    @overload
    async def generate_raw(
        self,
        prompt: Prompt,
        *,
        on_result: OnResult | None = None,
        return_errors: bool,
        **options: Unpack[GenerateOptions],
    ) -> Result: ...
    @overload
    async def generate_raw(
        self,
        prompt: Sequence[Prompt],
        *,
        on_result: OnResult | None = None,
        return_errors: bool,
        **options: Unpack[GenerateOptions],
    ) -> list[Result]: ...
    @overload
    async def generate_raw(
        self,
        prompt: Prompt,
        *,
        n: int,
        on_result: OnResult | None = None,
        return_errors: Literal[False] = False,
        **options: Unpack[GenerateOptions],
    ) -> list[Generation]: ...
    @overload
    async def generate_raw(
        self,
        prompt: Sequence[Prompt],
        *,
        n: int,
        on_result: OnResult | None = None,
        return_errors: Literal[False] = False,
        **options: Unpack[GenerateOptions],
    ) -> list[list[Generation]]: ...
    @overload
    async def generate_raw(
        self,
        prompt: Prompt,
        *,
        n: int,
        on_result: OnResult | None = None,
        return_errors: bool,
        **options: Unpack[GenerateOptions],
    ) -> list[Result]: ...
    @overload
    async def generate_raw(
        self,
        prompt: Sequence[Prompt],
        *,
        n: int,
        on_result: OnResult | None = None,
        return_errors: bool,
        **options: Unpack[GenerateOptions],
    ) -> list[list[Result]]: ...
    async def generate_raw(
        self,
        prompt: Prompts,
        *,
        n: int | None = None,
        on_result: OnResult | None = None,
        return_errors: bool = False,
        **options: Unpack[GenerateOptions],
    ) -> Any:
        """As LLM.generate_raw; `on_result` is called in the event loop."""
        check_n(n)
        task = resolve_options(options)
        prompts, is_batch = split_prompts(prompt)
        results = await self._run(prompts, task, on_result, n)
        if not return_errors:
            all_or_raise(results)
        return arranged(results, n, is_batch=is_batch)

    def stream(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> AsyncIterator[str]:
        """As LLM.stream."""
        return self._parts(prompt, options, texts_of)

    @overload
    def stream_partial(
        self, prompt: Prompt, *, schema: type[T], **options: Unpack[OtherOptions]
    ) -> AsyncIterator[T]: ...
    @overload
    def stream_partial(
        self, prompt: Prompt, *, schema: Any, **options: Unpack[OtherOptions]
    ) -> AsyncIterator[Any]: ...
    def stream_partial(
        self, prompt: Prompt, *, schema: Any, **options: Unpack[OtherOptions]
    ) -> AsyncIterator[Any]:
        """As LLM.stream_partial."""
        values = PartialValues(schema)
        return self._parts(prompt, {**options, "schema": schema}, values.take)

    @overload
    def stream_items(
        self, prompt: Prompt, *, schema: type[list[T]], **options: Unpack[OtherOptions]
    ) -> AsyncIterator[T]: ...
    @overload
    def stream_items(
        self, prompt: Prompt, *, schema: Any, **options: Unpack[OtherOptions]
    ) -> AsyncIterator[Any]: ...
    def stream_items(
        self, prompt: Prompt, *, schema: Any, **options: Unpack[OtherOptions]
    ) -> AsyncIterator[Any]:
        """As LLM.stream_items."""
        items = PartialItems(schema)
        return self._parts(prompt, {**options, "schema": schema}, items.take)

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

    async def _run(
        self, prompts: Sequence[Prompt], task: Task, on_result: OnResult | None, n: int | None
    ) -> list[Result]:
        prepared = self._service.prepare_all(prompts, task, n)
        results: dict[int, Result] = {}
        finished: asyncio.Queue[int] = asyncio.Queue()
        tell = in_event_loop(finished.put_nowait)
        try:
            for index, one in enumerate(prepared):
                self._service.start(one, tell_when_finished(tell, index))
            while len(results) < len(prepared):
                index = await finished.get()
                result = result_of(self._service, prepared[index])
                again = self._service.next_attempt(prepared[index], result)
                if again is not None:
                    prepared[index] = again
                    self._service.start(again, tell_when_finished(tell, index))
                    continue
                results[index] = result
                if on_result is not None:
                    on_result(index, results[index])
        except BaseException:  # also CancelledError: nobody will read what still runs
            for one in prepared:
                self._service.cancel(one)
            raise
        return [results[index] for index in range(len(prepared))]

    async def _parts(
        self,
        prompt: Prompt,
        options: GenerateOptions,
        take: Callable[[str | Generation], Iterable[V]],
    ) -> AsyncIterator[V]:
        """What `take` makes of each piece of the text, and of the Generation."""
        prepared = self._service.prepare(prompt, resolve_options(options))
        news: asyncio.Queue[News] = asyncio.Queue()
        self._service.start(prepared, in_event_loop(news.put_nowait), is_streamed=True)
        is_finished = False
        try:
            while not is_finished:
                item = await news.get()
                is_finished = item.finished is not None
                for part in take(item.text) if item.text else ():
                    yield part
            for part in take(self._service.finish(prepared)):
                yield part
        except GenerationError as error:
            error.usage = error.usage or prepared.request.usage
            raise
        finally:
            if not is_finished:
                self._service.cancel(prepared)


def in_event_loop(call: Callable[[V], None]) -> Callable[[V], None]:
    """`call`, made from any thread to run in the event loop that is running now."""
    loop = asyncio.get_running_loop()

    def call_later(value: V) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: whoever asked is gone
            loop.call_soon_threadsafe(call, value)

    return call_later
