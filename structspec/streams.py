"""LLM's streams: a text in pieces, a value as it grows, the items of a list one by one."""

from __future__ import annotations

import queue
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, TypeVar, Unpack, overload

from structspec.errors import GenerationError
from structspec.generation import Generation
from structspec.options import GenerateOptions, OtherOptions
from structspec.partial_values import PartialItems, PartialValues
from structspec.priming import primed
from structspec.prompts import Prompt
from structspec.results import texts_of
from structspec.runner import Runner, Told

T = TypeVar("T")


class Streams:
    """What of LLM gives more than one thing for a prompt."""

    _service: Runner

    def stream(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Iterator[str]:
        """The text of one prompt in pieces, as they become certain; whole characters only.

        The finished text is validated as in `generate`: what is wrong with it is raised behind the
        last piece. There is one attempt, whatever `max_attempts` says: pieces cannot be taken back.
        Closing the iterator early cancels the request.
        """
        return self._parts(prompt, options, texts_of)

    @overload
    def stream_partial(
        self, prompt: Prompt, *, schema: type[T], **options: Unpack[OtherOptions]
    ) -> Iterator[T]: ...
    @overload
    def stream_partial(
        self, prompt: Prompt, *, schema: Any, **options: Unpack[OtherOptions]
    ) -> Iterator[Any]: ...
    def stream_partial(
        self, prompt: Prompt, *, schema: Any, **options: Unpack[OtherOptions]
    ) -> Iterator[Any]:
        """The value of one prompt as it grows: partial ones, and at last the validated one itself.

        PartialValues says what a partial one is: what a type checker takes for a Person is a
        PartialPerson until the last, some of whose attributes are None. Otherwise as `stream`.
        """
        values = PartialValues(schema)
        return self._parts(prompt, {**options, "schema": schema}, values.take)

    @overload
    def stream_items(
        self, prompt: Prompt, *, schema: type[list[T]], **options: Unpack[OtherOptions]
    ) -> Iterator[T]: ...
    @overload
    def stream_items(
        self, prompt: Prompt, *, schema: Any, **options: Unpack[OtherOptions]
    ) -> Iterator[Any]: ...
    def stream_items(
        self, prompt: Prompt, *, schema: Any, **options: Unpack[OtherOptions]
    ) -> Iterator[Any]:
        """The items of a list, each validated as soon as it is written: of `schema=list[T]` Ts.

        Also of other collections, and of JSON schemas of arrays with `items`. An item that does not
        validate ends the stream with OutputInvalid. Otherwise as `stream`.
        """
        items = PartialItems(schema)
        return self._parts(prompt, {**options, "schema": schema}, items.take)

    def _parts(
        self,
        prompt: Prompt,
        options: GenerateOptions,
        take: Callable[[str | Generation], Iterable[T]],
    ) -> Iterator[T]:
        """What `take` makes of each piece of the text, and of the Generation; starts at once."""
        prepared = self._service.prepare(prompt, self._service.resolve(options))
        news: queue.SimpleQueue[Told] = queue.SimpleQueue()
        self._service.start(prepared, news.put, is_streamed=True)
        return primed(self._read(prepared, news, take))

    def _read(
        self,
        prepared: Any,
        news: queue.SimpleQueue[Told],
        take: Callable[[str | Generation], Iterable[T]],
    ) -> Generator[T | None]:
        is_finished = False
        try:
            yield None
            while not is_finished:
                item = news.get()
                is_finished = item.is_last
                if item.text:
                    yield from take(item.text)
            yield from take(self._service.finish(prepared))
        except GenerationError as error:
            error.usage = error.usage or self._service.usage_of(prepared)
            raise
        finally:
            if not is_finished:
                self._service.cancel(prepared)
