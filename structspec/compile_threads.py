"""Threads that compile one job after the other; one that takes too long is replaced."""

from __future__ import annotations

import ctypes
import itertools
import logging
import math
import queue
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from structspec.constraint import TOO_DEEP, Constraint
from structspec.errors import EngineError, GrammarError, StructspecError
from structspec.grammars.base import CompiledGrammar
from structspec.settings import BackendName

logger = logging.getLogger("structspec")

_LOST_S = 0.01  # until an interrupt that was lost comes again
_MAX_WAIT_S = 3600.0  # a lock cannot wait for ever and be told so
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """One compile and where its result goes."""

    key: str
    digest: str  # of the constraint alone, as the disk cache knows it
    constraint: Constraint
    backend: BackendName
    num_characters: int
    future: Future[CompiledGrammar] = field(default_factory=Future)


@dataclass(frozen=True, slots=True)
class Steps:
    """What is done with each job, in this order."""

    begin: Callable[[Job], bool]  # False: nobody wants it any more
    compile: Callable[[Job], CompiledGrammar]
    finish: Callable[[Job, CompiledGrammar | StructspecError], None]
    late: Callable[[Job], None]  # instead of finish, where compile takes too long
    idle: Callable[[], None]  # after a while without jobs


class CompileThreads:
    """A few threads and their queue, shortest constraint first; thread-safe.

    A thread that compiles for longer than `limit_s` is interrupted. That works while it runs
    Python; inside a library it ends when the library returns. Either way another is in its place.
    """

    def __init__(
        self, name: str, num_threads: int, steps: Steps, *, limit_s: float, idle_s: float
    ) -> None:
        self._name = name
        self._steps = steps
        self._limit_s = limit_s
        self._idle_s = idle_s
        self._jobs: queue.PriorityQueue[tuple[int, int, Job | None]] = queue.PriorityQueue()
        self._numbers = itertools.count()
        # what the lock guards: who compiles what, and until when
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._running: dict[threading.Thread, tuple[Job, float]] = {}
        self._threads: set[threading.Thread] = set()
        self._num_threads = num_threads
        self._is_closed = False
        for _ in range(num_threads):
            self._start(self._work)
        self._watcher = self._start(self._watch)

    def put(self, job: Job, *, is_slow: bool = False) -> None:
        """Compile it when its turn comes: after all that are shorter, or not known to be slow."""
        size = 64 if is_slow else job.num_characters.bit_length()
        self._jobs.put((size, next(self._numbers), job))

    def close(self) -> None:
        """End the threads that compile nothing, and the others when they have finished."""
        with self._lock:
            self._is_closed = True
            self._changed.notify()
            idle = self._threads - self._running.keys()
            if self._running:  # then the watcher goes on, too
                idle.discard(self._watcher)
        for _ in range(self._num_threads):
            self._jobs.put((-1, next(self._numbers), None))
        for thread in idle - {threading.current_thread()}:
            # One that frees objects while the interpreter ends would abort the process.
            thread.join(timeout=1.0)

    def _start(self, target: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=target, name=f"structspec-{self._name}", daemon=True)
        self._threads.add(thread)
        thread.start()
        return thread

    def _work(self) -> None:
        """Compile until closed, or until a job took too long."""
        try:
            while self._work_once():
                pass
        except _Interrupted:
            return

    def _work_once(self) -> bool:
        """One job, or one wait for a job; False to end the thread."""
        try:
            job = self._jobs.get(timeout=self._idle_s)[2]
        except queue.Empty:
            self._steps.idle()
            return True
        if job is None:
            return False
        is_begun = _attempt(lambda: self._steps.begin(job))
        if isinstance(is_begun, StructspecError):
            self._steps.finish(job, is_begun)
        if is_begun is not True:
            return True
        with self._lock:
            self._running[threading.current_thread()] = job, time.monotonic() + self._limit_s
            self._changed.notify()
        result = _attempt(lambda: self._steps.compile(job))
        with self._lock:
            if self._running.pop(threading.current_thread(), None) is None:
                return False
            self._changed.notify()
        self._steps.finish(job, result)
        return True

    def _watch(self) -> None:
        """Replace threads whose time is over, until closed."""
        while True:
            with self._lock:
                if self._is_closed and not self._running:
                    return
                now = time.monotonic()
                late = [thread for thread, (_, end) in self._running.items() if end <= now]
                if not late:
                    ends = [end for _, end in self._running.values()]
                    self._changed.wait(
                        min(max(0.0, min(ends, default=math.inf) - now), _MAX_WAIT_S)
                    )
                    continue
                jobs = [self._running.pop(thread)[0] for thread in late]
                self._threads.difference_update(late)
                for thread in late:
                    _interrupt(thread)
                    self._start(self._work)
            for job in jobs:
                self._steps.late(job)


class _Interrupted(BaseException):
    """Raised in a thread from outside, past every `except Exception`."""


def _deliver_lost_ones() -> None:
    """Have interrupts raised again that came while a callback ran which lets nothing out.

    A library's callbacks from C are such, and the garbage collector's: what is raised there is
    printed and lost. Others are told as before.
    """
    tell = sys.unraisablehook

    def tell_others(unraisable: Any) -> None:
        if unraisable.exc_type is not _Interrupted:
            tell(unraisable)
            return
        again = threading.Timer(_LOST_S, _interrupt, (threading.current_thread(),))
        again.daemon = True
        again.start()

    sys.unraisablehook = tell_others


_deliver_lost_ones()


def _interrupt(thread: threading.Thread) -> None:
    if not thread.is_alive():  # another may have its number
        return
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident or 0), ctypes.py_object(_Interrupted)
    )


def _attempt(call: Callable[[], _T]) -> _T | StructspecError:
    """The result, or the error as users see it."""
    try:
        return call()
    except StructspecError as error:
        return error
    except RecursionError:
        return GrammarError(TOO_DEEP)
    except Exception as error:
        logger.exception("compiling a grammar failed unexpectedly")
        failure = EngineError(f"compiling failed: {type(error).__name__}: {error}")
        failure.__cause__ = error
        return failure
