"""Requests in flight: run to their results, or read while they are written; all of asyncio.

Whoever stops waiting, because the client has gone away, cancels them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from structspec.call_run import result_of
from structspec.engine.loop import News
from structspec.event_loop import in_event_loop
from structspec.generation import Generation
from structspec.request import Request
from structspec.service import Prepared, Service


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a request ended: its last attempt, and the result or the error of that."""

    request: Request
    result: Generation | Exception


@dataclass(frozen=True, slots=True)
class Piece:
    """What one of several requests has written since it was last heard of."""

    index: int
    text: str
    is_finished: bool
    reasoning: str = ""


async def run_all(service: Service, prepared: Sequence[Prepared]) -> list[Outcome]:
    """How each one ends; drawn again as often as its task allows."""
    return list(await asyncio.gather(*(_run(service, one) for one in prepared)))


async def _run(service: Service, prepared: Prepared) -> Outcome:
    while True:
        finished = asyncio.Event()
        tell = in_event_loop(partial(_tell_finished, finished.set))
        service.start(prepared, tell)
        try:
            await finished.wait()
        except BaseException:
            service.cancel(prepared)
            raise
        result = result_of(service, prepared)
        again = service.next_attempt(prepared, result)
        if again is None:
            return Outcome(prepared.request, result)
        prepared = again


def _tell_finished(tell: Callable[[], None], news: News) -> None:
    if news.finished is not None:
        tell()


async def read_all(service: Service, prepared: Sequence[Prepared]) -> AsyncGenerator[Piece]:
    """Pieces of all of them as they come; those of one that piled up meanwhile are one."""
    inbox = _Inbox()
    running = set(range(len(prepared)))
    try:
        for index, one in enumerate(prepared):
            service.start(one, in_event_loop(partial(inbox.put, index)), is_streamed=True)
        while running:
            for piece in _joined(await inbox.take()):
                if piece.is_finished:
                    running.discard(piece.index)
                yield piece
    finally:
        for index in running:
            service.cancel(prepared[index])


class _Inbox:
    """News that one task waits for and takes all at once; cheaper than an asyncio.Queue."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, News]] = []
        self._reader: asyncio.Future[None] | None = None

    def put(self, index: int, news: News) -> None:
        """Add to it; the task runs soon."""
        self._waiting.append((index, news))
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def take(self) -> list[tuple[int, News]]:
        """All there is, once there is any."""
        if not self._waiting:
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        waiting, self._waiting = self._waiting, []
        return waiting


def _joined(waiting: Sequence[tuple[int, News]]) -> list[Piece]:
    if len(waiting) == 1:
        ((index, news),) = waiting
        return [Piece(index, news.text, news.finished is not None, news.reasoning)]
    pieces: dict[int, Piece] = {}
    for index, news in waiting:
        before = pieces.get(index, Piece(index, "", False))
        pieces[index] = Piece(
            index,
            before.text + news.text,
            news.finished is not None,
            before.reasoning + news.reasoning,
        )
    return [*pieces.values()]
