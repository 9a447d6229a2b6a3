"""News from other threads to an event loop, which is woken once for all that come together."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

V = TypeVar("V")


def in_event_loop(call: Callable[[V], None]) -> Callable[[V], None]:
    """`call`, made from any thread to run in the event loop that is running now, in order.

    Waking a loop is a write to a socket: an engine that tells hundreds of requests of a step would
    spend more time on that than on the step, so calls that come before it looks share one. What a
    call raises goes to the loop's exception handler.
    """
    loop = asyncio.get_running_loop()
    mailbox = _MAILBOXES.get(loop)
    if mailbox is None:
        mailbox = _MAILBOXES[loop] = _Mailbox(loop)

    def call_later(value: V) -> None:
        mailbox.put(call, value)

    return call_later


@contextlib.contextmanager
def handed_over_together() -> Iterator[None]:
    """Wake loops for the calls that this thread makes within once all of them are made.

    A loop woken at the first one takes the interpreter from the thread that makes the others, and
    runs again for those it has missed.
    """
    assert not hasattr(_THREAD, "to_wake")
    to_wake: list[_Mailbox] = []
    _THREAD.to_wake = to_wake
    try:
        yield
    finally:
        del _THREAD.to_wake
        for mailbox in to_wake:
            mailbox.wake()


class _Mailbox:
    """Calls that one loop has yet to make; `put` is thread-safe."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)  # the table of mailboxes must not keep it alive
        self._lock = threading.Lock()
        self._waiting: list[tuple[Callable[[Any], None], Any]] = []

    def put(self, call: Callable[[Any], None], value: Any) -> None:
        """Have the loop make a call; nothing happens once it is closed: whoever asked is gone."""
        with self._lock:
            is_first = not self._waiting
            self._waiting.append((call, value))
        if not is_first:
            return
        to_wake = getattr(_THREAD, "to_wake", None)
        if to_wake is None:
            self.wake()
        else:
            to_wake.append(self)

    def wake(self) -> None:
        """Have the loop look."""
        loop = self._loop()
        if loop is not None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for call, value in waiting:
            try:
                call(value)
            except Exception as error:  # the others are still to be made
                loop = self._loop()
                assert loop is not None
                told = {"message": f"{call!r} failed", "exception": error}
                loop.call_exception_handler(told)


_THREAD = threading.local()
_MAILBOXES: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Mailbox] = (
    weakref.WeakKeyDictionary()
)
