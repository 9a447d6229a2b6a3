"""Where a client's requests run: in the caller's event loop, or in one on a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from structspec.errors import Cancelled

Work = Coroutine[Any, Any, None]


class Loop(Protocol):
    """Runs what it is given, which raises nothing."""

    def spawn(self, work: Work) -> Callable[[], object]:
        """Start it, and return what cancels it; raises Cancelled where no more is taken."""


class CallersLoop:
    """The event loop that is running wherever something is spawned."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Work) -> Callable[[], object]:
        """As Loop says."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)  # loops hold their tasks weakly
        task.add_done_callback(self._tasks.discard)
        return task.cancel

    async def close(self) -> None:
        """Cancel what runs."""
        await _cancel(self._tasks)


class OwnLoop:
    """An event loop on a thread that is started with the first work; thread-safe.

    So a blocking call can be broken off at once, by Ctrl-C too, and its connections are closed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def spawn(self, work: Work) -> Callable[[], object]:
        """As Loop says."""
        with self._lock:
            if self._is_closed:
                work.close()
                raise Cancelled("the client is closed")
            return asyncio.run_coroutine_threadsafe(work, self._running()).cancel

    def close(self, last: Callable[[], Awaitable[None]]) -> None:
        """Cancel what runs, do the `last` thing and end the thread; again does nothing."""
        with self._lock:
            is_first, self._is_closed = not self._is_closed, True
            loop = self._running() if is_first else None
        if loop is None or self._thread is None:
            return

        async def end() -> None:
            await _cancel(asyncio.all_tasks() - {asyncio.current_task()})
            with contextlib.suppress(Exception):  # connections that are broken are closed too
                await last()

        asyncio.run_coroutine_threadsafe(end(), loop).add_done_callback(
            lambda _: loop.call_soon_threadsafe(loop.stop)
        )
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=_run, args=(self._loop,), name="structspec-client", daemon=True
            )
            self._thread.start()
        return self._loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


async def _cancel(tasks: set[asyncio.Task[Any]] | set[asyncio.Task[None]]) -> None:
    running = [*tasks]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
