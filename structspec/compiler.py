"""Compiling constraints in the background: a pool of threads, a cache, a time limit."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass

from structspec.constraint import TOO_DEEP, Constraint
from structspec.errors import (
    Cancelled,
    CompileTimeout,
    EngineError,
    GrammarError,
    InvalidRequest,
    StructspecError,
)
from structspec.grammars.base import BackendName, CompiledGrammar
from structspec.grammars.router import Backends, check_backend_name
from structspec.vocabulary import Vocabulary

logger = logging.getLogger("structspec")

_Key = tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    """One compile and where its result goes."""

    key: _Key
    constraint: Constraint
    backend: BackendName
    future: Future[CompiledGrammar]


@dataclass(frozen=True, slots=True)
class _Running:
    """A job that a worker has begun."""

    job: _Job
    deadline: float


class GrammarCompiler:
    """Compiles constraints for one vocabulary; thread-safe.

    Equal constraints share one compile and its result; the `cache_size` last used are kept, a
    failure is not. After `timeout_s` of compiling the future gets CompileTimeout: the library
    cannot be interrupted, so its thread is left to end alone and another takes its place.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        backend: BackendName = "auto",
        *,
        num_threads: int = 2,
        timeout_s: float = 10.0,
        cache_size: int = 256,
    ) -> None:
        check_backend_name(backend)
        if num_threads < 1 or not timeout_s > 0 or cache_size < 0:
            raise InvalidRequest(
                "num_threads must be at least 1, timeout_s above 0 and cache_size at least 0, not"
                f" {num_threads!r}, {timeout_s!r} and {cache_size!r}"
            )
        self.vocabulary = vocabulary
        self._backend: BackendName = backend
        self._timeout_s = timeout_s
        self._cache_size = cache_size
        self._backends = Backends(vocabulary)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._num_threads = num_threads
        # what the lock guards: compiles in flight, results kept, and who works on what since when
        self._lock = threading.Lock()
        self._started = threading.Condition(self._lock)
        self._in_flight: dict[_Key, Future[CompiledGrammar]] = {}
        self._cache: OrderedDict[_Key, Future[CompiledGrammar]] = OrderedDict()
        self._running: dict[threading.Thread, _Running] = {}
        self._workers: set[threading.Thread] = set()
        self._is_closed = False
        for _ in range(num_threads):
            self._start_worker()
        watcher = threading.Thread(target=self._watch, name="structspec-watch", daemon=True)
        self._workers.add(watcher)
        watcher.start()

    def submit(
        self, constraint: Constraint, backend: BackendName | None = None
    ) -> Future[CompiledGrammar]:
        """Start compiling, or share what is being or has been compiled; returns at once.

        Every error, of validation too, arrives through the future, which is shared with others
        and cannot be cancelled. Raises InvalidRequest only for an unknown backend or what is no
        constraint.
        """
        name: BackendName = backend or self._backend
        check_backend_name(name)
        if not isinstance(constraint, Constraint):
            raise InvalidRequest(
                f"a constraint is a JsonSchema, Regex, Choice or Grammar, not {constraint!r}"
            )
        try:
            key = (name, *constraint.key)
            hash(key)
        except (StructspecError, TypeError) as error:
            return _failed(error if isinstance(error, StructspecError) else _not_text(error))
        with self._lock:
            if self._is_closed:
                return _failed(Cancelled("the grammar compiler is closed"))
            if key in self._cache:
                self._cache.move_to_end(key)
                return self._cache[key]
            if key in self._in_flight:
                return self._in_flight[key]
            future: Future[CompiledGrammar] = Future()
            future.set_running_or_notify_cancel()  # from here on nobody can cancel it
            self._in_flight[key] = future
            self._jobs.put(_Job(key, constraint, name, future))
        return future

    async def compile(
        self, constraint: Constraint, backend: BackendName | None = None
    ) -> CompiledGrammar:
        """Compile without blocking the event loop; raises what the future of `submit` would."""
        return await asyncio.wrap_future(self.submit(constraint, backend))

    def close(self) -> None:
        """Give up what has not begun and end the threads that compile nothing; idempotent."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            begun = {running.job.key for running in self._running.values()}
            given_up = [self._in_flight.pop(key) for key in self._in_flight.keys() - begun]
            self._started.notify()
            idle = self._workers - self._running.keys()
        for future in given_up:
            future.set_exception(Cancelled("the grammar compiler was closed"))
        for _ in range(self._num_threads):
            self._jobs.put(None)
        for thread in idle - {threading.current_thread()}:
            # One that frees objects while the interpreter ends would abort the process.
            thread.join(timeout=1.0)

    def _start_worker(self) -> None:
        thread = threading.Thread(target=self._work, name="structspec-compile", daemon=True)
        self._workers.add(thread)
        thread.start()

    def _work(self) -> None:
        """Compile one job after the other; ends when closed or when a job took too long."""
        while (job := self._jobs.get()) is not None:
            if not self._begin(job):
                continue
            result: CompiledGrammar | BaseException
            try:
                result = self._backends.get(job.backend, job.constraint).compile(job.constraint)
            except StructspecError as error:
                result = error
            except RecursionError:
                result = GrammarError(TOO_DEEP)
            except Exception as error:
                logger.exception("compiling a grammar failed unexpectedly")
                result = EngineError(f"compiling failed: {type(error).__name__}: {error}")
                result.__cause__ = error
            if not self._finish(job, result):
                return
            del job, result  # while this thread waits it must keep nothing alive

    def _begin(self, job: _Job) -> bool:
        """Note that this thread compiles; False if the job was given up meanwhile."""
        with self._lock:
            if job.key not in self._in_flight:
                return False
            deadline = time.monotonic() + self._timeout_s
            self._running[threading.current_thread()] = _Running(job, deadline)
            self._started.notify()
            return True

    def _finish(self, job: _Job, result: CompiledGrammar | BaseException) -> bool:
        """Hand over the result; False if the job was given up and another thread is in place."""
        with self._lock:
            if self._running.pop(threading.current_thread(), None) is None:
                return False
            del self._in_flight[job.key]
            if not isinstance(result, BaseException) and self._cache_size:
                self._cache[job.key] = job.future
                if len(self._cache) > self._cache_size:
                    self._cache.popitem(last=False)
        if isinstance(result, BaseException):
            job.future.set_exception(result)
        else:
            job.future.set_result(result)
        return True

    def _watch(self) -> None:
        """Give up jobs whose time is over, until closed."""
        while True:
            with self._lock:
                if self._is_closed and not self._running:
                    return
                late = [t for t, r in self._running.items() if r.deadline <= time.monotonic()]
                if not late:
                    self._started.wait(self._seconds_to_deadline())
                    continue
                overdue = [self._running.pop(thread).job for thread in late]
                self._workers.difference_update(late)
                for job in overdue:
                    del self._in_flight[job.key]
            for job in overdue:
                self._start_worker()
                message = f"the grammar took more than {self._timeout_s:g} s to compile"
                job.future.set_exception(CompileTimeout(message))

    def _seconds_to_deadline(self) -> float | None:
        deadlines = [running.deadline for running in self._running.values()]
        return max(0.0, min(deadlines) - time.monotonic()) if deadlines else None


def _failed(error: StructspecError) -> Future[CompiledGrammar]:
    future: Future[CompiledGrammar] = Future()
    future.set_exception(error)
    return future


def _not_text(error: TypeError) -> GrammarError:
    return GrammarError(f"the constraint is not made of text: {error}")
