"""The requests of one call: in flight, drawn again where need be, to results in their order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Self

from structspec.errors import InvalidRequest
from structspec.options import Task
from structspec.prompts import Prompt
from structspec.results import OnResult, Result
from structspec.runner import Runner, Told


class CallRun:
    """Starts requests as they come, at most `max_in_flight` at once; a context.

    `tell(index)` is called on the engine's thread when one has ended; whoever waits hands the index
    to `take`. `on_result` gets each result as it is known. With `raises` the first error is raised.
    Leaving the context by an exception cancels what runs: nobody will read it.
    """

    def __init__(
        self,
        service: Runner,
        prepared: Iterable[Any],
        tell: Callable[[int], None],
        *,
        on_result: OnResult | None = None,
        max_in_flight: int | None = None,
        raises: bool = False,
    ) -> None:
        self._service = service
        self._waiting = iter(prepared)
        self._tell = tell
        self._on_result = on_result
        self._max_in_flight = max_in_flight
        self._raises = raises
        self._running: dict[int, Any] = {}
        self._num_begun = 0
        self._results: dict[int, Result] = {}

    def __enter__(self) -> Self:
        try:
            self._fill()
        except BaseException:
            self._cancel()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self._cancel()

    @property
    def is_running(self) -> bool:
        """Whether there is still something to wait for."""
        return bool(self._running)

    @property
    def results(self) -> list[Result]:
        """All of them, in the order of the requests, once nothing runs."""
        return [self._results[index] for index in range(len(self._results))]

    def take(self, index: int) -> None:
        """Take in a request that has ended; starts what has waited for its place."""
        prepared = self._running.pop(index)
        result = result_of(self._service, prepared)
        again = self._service.next_attempt(prepared, result)
        if again is not None:
            self._start(index, again)
        else:
            self._end(index, result)
            self._fill()

    def _fill(self) -> None:
        while self._max_in_flight is None or len(self._running) < self._max_in_flight:
            prepared = next(self._waiting, None)
            if prepared is None:
                return
            index, self._num_begun = self._num_begun, self._num_begun + 1
            if isinstance(prepared, Exception):
                self._end(index, prepared)
            else:
                self._start(index, prepared)

    def _start(self, index: int, prepared: Any) -> None:
        self._running[index] = prepared
        self._service.start(prepared, _when_finished(self._tell, index))

    def _end(self, index: int, result: Result) -> None:
        if self._raises and isinstance(result, Exception):
            raise result
        self._results[index] = result
        if self._on_result is not None:
            self._on_result(index, result)

    def _cancel(self) -> None:
        for prepared in self._running.values():
            self._service.cancel(prepared)


def prepare_rows(
    service: Runner, prompts: Iterable[Prompt], task: Task, num_outputs: int | None = None
) -> Iterator[Any]:
    """Each prompt's requests, or as often what is wrong with it, once they are asked for."""
    for prompt in prompts:
        try:
            yield from service.prepare_all([prompt], task, num_outputs)
        except InvalidRequest as error:
            yield from [error] * (num_outputs or 1)


def result_of(service: Runner, prepared: Any) -> Result:
    """The Generation of a finished request, or the error it ended with.

    Also any error that a caller's own validator raises: it must not cost the other results.
    """
    try:
        return service.finish(prepared)
    except Exception as error:
        return error


def _when_finished(tell: Callable[[int], None], index: int) -> Callable[[Told], None]:
    """A listener that passes on `index` with the last news."""

    def listen(news: Told) -> None:
        if news.is_last:
            tell(index)

    return listen
