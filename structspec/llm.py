"""LLM: prompts in, validated values out."""

# A str is a Sequence[str] too: where both overloads fit, the first, for one prompt, is meant.
# mypy: disable-error-code="overload-overlap"

from __future__ import annotations

import queue
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack, overload

from structspec.config import EngineConfig
from structspec.engine.loop import News
from structspec.errors import GenerationError
from structspec.generation import Generation
from structspec.metrics import Metrics
from structspec.models.loading import DType
from structspec.options import GenerateOptions, OtherOptions, Task, check_n, resolve_options
from structspec.partial_values import PartialItems, PartialValues
from structspec.prompts import Prompt, Prompts, split_prompts
from structspec.results import OnResult, Result, all_or_raise, arranged, texts_of
from structspec.service import Prepared, Service

T = TypeVar("T")


class LLM:
    """A language model in this process whose output is what you ask for; thread-safe.

    `model` is a known name ("smollm2-135m"), a `.gguf` file, a folder with `config.json`,
    safetensors and tokenizer, or a hub id. Calls from several threads are batched together; a child
    made by `os.fork` must make its own, for threads do not follow it.

    `device` "auto" is a GPU if torch finds one, else the CPU; `dtype` "auto" is bfloat16 on a GPU,
    float32 on the CPU. On a GPU the engine takes most of the memory (`gpu_memory_utilization` of
    EngineConfig), and its kernels need some seconds to get ready.

    Errors are StructspecErrors: InvalidRequest and GrammarError for what was asked,
    GenerationError, with the text and usage there are, for what came of it.
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
    def generate(
        self, prompt: Prompt, *, schema: type[T], **options: Unpack[OtherOptions]
    ) -> T: ...
    @overload
    def generate(
        self, prompt: Sequence[Prompt], *, schema: type[T], **options: Unpack[OtherOptions]
    ) -> list[T]: ...
    @overload
    def generate(
        self, prompt: Prompt, *, schema: None = None, **options: Unpack[OtherOptions]
    ) -> str: ...
    @overload
    def generate(
        self, prompt: Sequence[Prompt], *, schema: None = None, **options: Unpack[OtherOptions]
    ) -> list[str]: ...
    @overload
    def generate(
        self, prompt: Prompt, *, schema: type[T], n: int, **options: Unpack[OtherOptions]
    ) -> list[T]: ...
    @overload
    def generate(
        self, prompt: Sequence[Prompt], *, schema: type[T], n: int, **options: Unpack[OtherOptions]
    ) -> list[list[T]]: ...
    @overload
    def generate(
        self, prompt: Prompt, *, schema: None = None, n: int, **options: Unpack[OtherOptions]
    ) -> list[str]: ...
    @overload
    def generate(
        self,
        prompt: Sequence[Prompt],
        *,
        schema: None = None,
        n: int,
        **options: Unpack[OtherOptions],
    ) -> list[list[str]]: ...
    @overload
    def generate(
        self, prompt: Prompts, *, schema: Any, n: int | None = None, **options: Unpack[OtherOptions]
    ) -> Any: ...
    def generate(
        self, prompt: Prompts, *, n: int | None = None, **options: Unpack[GenerateOptions]
    ) -> Any:
        """The value for a prompt (a string or chat messages); for a list of prompts, a list.

        With `n=` as many outputs of each prompt, in a list: of one prompt, a list of values. With a
        seed each is drawn from one of its own, the first from the seed itself.

        With `schema=` it is validated and of that type, otherwise it is the text. What does not
        validate is drawn again, `max_attempts` times in all, before it is an OutputInvalid. Of a
        list the first error is raised once all have finished; `generate_raw` can return errors
        instead.
        """
        check_n(n)
        task = resolve_options(options)
        prompts, is_batch = split_prompts(prompt)
        results = all_or_raise(self._run(prompts, task, None, n))
        return arranged([one.value for one in results], n, is_batch=is_batch)

    @overload
    def generate_raw(
        self,
        prompt: Prompt,
        *,
        on_result: OnResult | None = None,
        return_errors: Literal[False] = False,
        **options: Unpack[GenerateOptions],
    ) -> Generation: ...
    @overload
    def generate_raw(
        self,
        prompt: Sequence[Prompt],
        *,
        on_result: OnResult | None = None,
        return_errors: Literal[False] = False,
        **options: Unpack[GenerateOptions],
    ) -> list[Generation]: ...
    @overload
    def generate_raw(
        self,
        prompt: Prompt,
        *,
        on_result: OnResult | None = None,
        return_errors: bool,
        **options: Unpack[GenerateOptions],
    ) -> Result: ...
    @overload
    def generate_raw(
        self,
        prompt: Sequence[Prompt],
        *,
        on_result: OnResult | None = None,
        return_errors: bool,
        **options: Unpack[GenerateOptions],
    ) -> list[Result]: ...
    @overload
    def generate_raw(
        self,
        prompt: Prompt,
        *,
        n: int,
        on_result: OnResult | None = None,
        return_errors: Literal[False] = False,
        **options: Unpack[GenerateOptions],
    ) -> list[Generation]: ...
    @overload
    def generate_raw(
        self,
        prompt: Sequence[Prompt],
        *,
        n: int,
        on_result: OnResult | None = None,
        return_errors: Literal[False] = False,
        **options: Unpack[GenerateOptions],
    ) -> list[list[Generation]]: ...
    @overload
    def generate_raw(
        self,
        prompt: Prompt,
        *,
        n: int,
        on_result: OnResult | None = None,
        return_errors: bool,
        **options: Unpack[GenerateOptions],
    ) -> list[Result]: ...
    @overload
    def generate_raw(
        self,
        prompt: Sequence[Prompt],
        *,
        n: int,
        on_result: OnResult | None = None,
        return_errors: bool,
        **options: Unpack[GenerateOptions],
    ) -> list[list[Result]]: ...
    def generate_raw(
        self,
        prompt: Prompts,
        *,
        n: int | None = None,
        on_result: OnResult | None = None,
        return_errors: bool = False,
        **options: Unpack[GenerateOptions],
    ) -> Any:
        """The Generation for a prompt; for a list of prompts, a list of them.

        `n` is that of `generate`. `on_result(index, generation_or_error)` is called on this thread
        as each one finishes; with `n` the outputs of a prompt are counted one by one. With
        `return_errors` an error takes its prompt's place in the list instead of being raised.
        """
        check_n(n)
        task = resolve_options(options)
        prompts, is_batch = split_prompts(prompt)
        results = self._run(prompts, task, on_result, n)
        if not return_errors:
            all_or_raise(results)
        return arranged(results, n, is_batch=is_batch)

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

    def _run(
        self, prompts: Sequence[Prompt], task: Task, on_result: OnResult | None, n: int | None
    ) -> list[Result]:
        # All are checked before any is started: a bad one costs the others nothing.
        prepared = self._service.prepare_all(prompts, task, n)
        results: dict[int, Result] = {}
        finished: queue.SimpleQueue[int] = queue.SimpleQueue()
        try:
            for index, one in enumerate(prepared):
                self._service.start(one, tell_when_finished(finished.put, index))
            while len(results) < len(prepared):
                index = finished.get()
                result = result_of(self._service, prepared[index])
                again = self._service.next_attempt(prepared[index], result)
                if again is not None:
                    prepared[index] = again
                    self._service.start(again, tell_when_finished(finished.put, index))
                    continue
                results[index] = result
                if on_result is not None:
                    on_result(index, results[index])
        except BaseException:  # also KeyboardInterrupt: nobody will read what still runs
            for one in prepared:
                self._service.cancel(one)
            raise
        return [results[index] for index in range(len(prepared))]

    def _parts(
        self,
        prompt: Prompt,
        options: GenerateOptions,
        take: Callable[[str | Generation], Iterable[T]],
    ) -> Iterator[T]:
        """What `take` makes of each piece of the text, and of the Generation; starts at once."""
        prepared = self._service.prepare(prompt, resolve_options(options))
        news: queue.SimpleQueue[News] = queue.SimpleQueue()
        self._service.start(prepared, news.put, is_streamed=True)
        return self._read(prepared, news, take)

    def _read(
        self,
        prepared: Prepared,
        news: queue.SimpleQueue[News],
        take: Callable[[str | Generation], Iterable[T]],
    ) -> Iterator[T]:
        is_finished = False
        try:
            while not is_finished:
                item = news.get()
                is_finished = item.finished is not None
                if item.text:
                    yield from take(item.text)
            yield from take(self._service.finish(prepared))
        except GenerationError as error:
            error.usage = error.usage or prepared.request.usage
            raise
        finally:
            if not is_finished:
                self._service.cancel(prepared)


def tell_when_finished(tell: Callable[[int], None], index: int) -> Callable[[News], None]:
    """A listener that passes on `index` with the last news."""

    def listen(news: News) -> None:
        if news.finished is not None:
            tell(index)

    return listen


def result_of(service: Service, prepared: Prepared) -> Result:
    """The Generation of a finished request, or the error it ended with.

    Also any error that a caller's own validator raises: it must not cost the other results.
    """
    try:
        return service.finish(prepared)
    except Exception as error:
        return error
