"""AsyncLLM's streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, TypeVar, Unpack, overload

from structspec.errors import GenerationError
from structspec.event_loop import in_event_loop
from structspec.generation import Generation
from structspec.options import GenerateOptions, OtherOptions
from structspec.partial_values import PartialItems, PartialValues
from structspec.prompts import Prompt
from structspec.results import texts_of
from structspec.runner import Runner, Told

T = TypeVar("T")
V = TypeVar("V")


class AsyncStreams:
    """What of AsyncLLM gives more than one thing for a prompt."""

    _service: Runner

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

    async def _parts(
        self,
        prompt: Prompt,
        options: GenerateOptions,
        take: Callable[[str | Generation], Iterable[V]],
    ) -> AsyncIterator[V]:
        """What `take` makes of each piece of the text, and of the Generation."""
        prepared = self._service.prepare(prompt, self._service.resolve(options))
        news: asyncio.Queue[Told] = asyncio.Queue()
        self._service.start(prepared, in_event_loop(news.put_nowait), is_streamed=True)
        is_finished = False
        try:
            while not is_finished:
                item = await news.get()
                is_finished = item.is_last
                for part in take(item.text) if item.text else ():
                    yield part
            for part in take(self._service.finish(prepared)):
                yield part
        except GenerationError as error:
            error.usage = error.usage or self._service.usage_of(prepared)
            raise
        finally:
            if not is_finished:
                self._service.cancel(prepared)
