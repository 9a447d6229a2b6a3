"""The engine's own thread: requests come in from any thread, news goes to their listeners."""

from __future__ import annotations

import logging
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from structspec.engine.engine import Engine
from structspec.engine.log_line import LogLine
from structspec.engine.news_rounds import NewsRounds
from structspec.errors import Cancelled, EngineError, StructspecError
from structspec.event_loop import handed_over_together
from structspec.models.out_of_memory import release_memory
from structspec.request import Request

logger = logging.getLogger("structspec")


@dataclass(frozen=True, slots=True)
class News:
    """New text of one request, its reasoning apart, and the request once it is finished."""

    text: str
    finished: Request | None
    reasoning: str = ""

    @property
    def is_last(self) -> bool:
        """Whether nothing follows."""
        return self.finished is not None


Listener = Callable[[News], None]

# Python's own 5 ms are several steps of a GPU: so long a thread that compiles may keep the engine's
# waiting for the interpreter. Asking for it more often costs a busy thread next to nothing.
_SWITCH_INTERVAL_S = 2e-4


class EngineLoop:
    """Steps an engine while there is work and sleeps while there is none; all methods thread-safe.

    A listener is called on the engine's thread and must return at once; what it raises is logged.
    Closing cancels what runs, and gives back a GPU's memory. The interpreter's switch interval is
    lowered for the whole process.
    The engine is built on its thread too: each thread that computes with torch gets OpenMP threads
    of its own, and once there are more of them than cores they sleep between a step's hundreds of
    parallel loops instead of spinning, which made a step on two cores a quarter slower.
    """

    def __init__(
        self,
        build: Callable[[], Engine],
        *,
        log_interval_s: float = 0.0,
        max_pieces_per_second: float = 0.0,
    ) -> None:
        """Returns once the engine is built; raises what `build` raised.

        While it is busy it says how it does every so many seconds; 0 is never. Where more than a
        few requests are streamed they have at most so many pieces of text a second together; 0 is
        no limit.
        """
        self._log_interval_s = log_interval_s
        self._rounds = NewsRounds(max_pieces_per_second)
        self._wake = threading.Condition()
        self._inbox: deque[Callable[[], None]] = deque()  # run by the engine's thread, in order
        self._listeners: dict[int, Listener] = {}
        self._is_closed = False
        self._last_error: StructspecError = Cancelled("the engine is closed")
        built: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(build, built), name="structspec-engine", daemon=True
        )
        self._thread.start()
        built.result()

    @property
    def is_alive(self) -> bool:
        """Whether requests are taken: it was not closed, and its thread has not failed."""
        return not self._is_closed

    def submit(self, request: Request, listener: Listener) -> None:
        """Start a request; `listener` gets its news, the last of it with `finished` set."""

        def add() -> None:
            self._listeners[request.request_id] = listener
            self._engine.scheduler.add(request)

        if not self._post(add):
            raise self._last_error
        if request.compiled is not None:
            # Weakly: the future outlives this loop in the compiler's threads, the model must not.
            this = weakref.ref(self)

            def wake(_: object) -> None:
                loop = this()
                if loop is not None:
                    loop._post(_do_nothing)  # it stays in the inbox until a step has looked

            request.compiled.add_done_callback(wake)

    def cancel(self, request: Request) -> None:
        """End a request early; its listener still gets the last news.

        Nothing happens if it has finished or was never submitted. A closed loop has ended all.
        """

        def fail() -> None:
            if request.request_id in self._listeners:
                self._engine.scheduler.fail(request, Cancelled("the request was cancelled"))

        self._post(fail)

    def close(self) -> None:
        """Cancel everything and end the thread; calling it again does nothing."""
        with self._wake:
            self._is_closed = True
            self._wake.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _post(self, action: Callable[[], None]) -> bool:
        """Have the engine's thread do something; False where it has ended."""
        with self._wake:
            if not self._is_closed:
                self._inbox.append(action)
                self._wake.notify()
            return not self._is_closed

    def _run(self, build: Callable[[], Engine], built: Future[None]) -> None:
        try:
            self._engine = build()
        except BaseException as error:  # it is the constructor's caller who has to see it
            built.set_exception(error)
            return
        log_line = LogLine(self._engine.scheduler.recorder.snapshot, self._log_interval_s)
        sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_INTERVAL_S))
        built.set_result(None)
        del build, built  # while this thread runs it must keep nothing else alive
        last_error: StructspecError = Cancelled("the engine was closed")
        try:
            while not self._is_closed:
                self._take_inbox()
                news = self._engine.step()
                is_idle = self._engine.is_idle
                self._tell_all(self._rounds.take(news, is_last=is_idle))
                log_line.tick()
                if is_idle and not news:
                    self._sleep()
        # Also a panic in a library's Rust code: nobody may wait for ever for a thread that is gone.
        except BaseException as error:
            logger.exception("the engine's thread failed")
            last_error = EngineError(f"the engine's thread failed: {error!r}")
        with self._wake:
            self._is_closed = True
            self._last_error = last_error
        self._take_inbox()
        self._tell_all(self._engine.scheduler.fail_all(last_error))
        del self._engine
        release_memory()

    def _take_inbox(self) -> None:
        while self._inbox:
            self._inbox.popleft()()

    def _sleep(self) -> None:
        with self._wake:
            if not self._inbox and not self._is_closed:
                # A time-out all the same: nobody is to wait for ever for a wake-up that got lost.
                self._wake.wait(0.05 if self._engine.scheduler.has_requests else None)

    def _tell_all(self, requests: Sequence[Request]) -> None:
        if requests:
            with handed_over_together():
                for request in requests:
                    self._tell(request)

    def _tell(self, request: Request) -> None:
        listener = self._listeners[request.request_id]
        if not request.is_finished:
            text = request.text.take()
            reasoning = request.reasoning.text.take() if request.reasoning is not None else ""
            if text or reasoning:
                _pass_on(News(text, None, reasoning), listener)
            return
        del self._listeners[request.request_id]
        request.stats.seconds = time.perf_counter() - request.arrival_time
        reasoning = request.reasoning.text.take_rest() if request.reasoning is not None else ""
        _pass_on(News(request.text.take_rest(), request, reasoning), listener)


def _pass_on(news: News, listener: Listener) -> None:
    try:
        listener(news)
    except Exception:  # the others are still to be told theirs
        logger.exception("a listener failed")


def _do_nothing() -> None:
    """Looking into the inbox is all there was to do."""
