"""Compiling constraints in the background: threads for what is quick, processes for the rest.

submit ─┬─ kept, or in flight: that future
        ├─ quick as a rule ─→ threads ──┐ not done in time
        └─ may run away ────────────────┴→ processes, killed when over their limits
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections import OrderedDict
from concurrent.futures import Future
from pathlib import Path
from typing import Self, cast

from structspec.compile_cache import DiskCache, MemoryCache
from structspec.compile_counts import CompileCounts
from structspec.compile_key import constraint_digest, digest_of
from structspec.compile_lanes import ONLY_IN_THREADS, is_quick
from structspec.compile_process import WorkerLimits
from structspec.compile_threads import CompileThreads, Job, Steps
from structspec.compile_workers import WorkerPool, closed, over_time
from structspec.constraint import TOO_DEEP, Constraint, Regex
from structspec.errors import (
    CompileTimeout,
    GrammarError,
    InvalidRequest,
    StructspecError,
)
from structspec.grammars.base import CompiledGrammar, Packed
from structspec.grammars.router import Backends, check_backend_name
from structspec.grammars.wide_rows import WideRows
from structspec.settings import BackendName
from structspec.vocabulary import Vocabulary

logger = logging.getLogger("structspec")

_PATIENCE_S = 1.0  # what takes longer in a thread is moved to a process
_UNUSED_S = 60.0  # a process with nothing to do for so long is ended
_NUM_DIGESTS = 4096


class GrammarCompiler:
    """Compiles constraints for one vocabulary; thread-safe.

    Equal constraints share one compile and its result; a failure is not kept. The last used are
    kept, at most `cache_size` of them and `max_cache_bytes` together, and with a `cache_dir` also
    on disk, where they may take `max_cache_dir_bytes`. After `timeout_s` of compiling the future
    gets CompileTimeout. What compiles in milliseconds does so in `num_threads` threads, everything
    else in at most `num_processes` other processes with `max_memory_bytes` each. Short constraints
    go first. Threads do not follow through `os.fork`: a forked child must not use the parent's
    compiler, nor what it compiled, but make its own.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        backend: BackendName = "auto",
        *,
        num_threads: int = 2,
        num_processes: int = 2,
        timeout_s: float = 10.0,
        max_memory_bytes: int = 2**30,
        max_constraint_bytes: int = 2**22,
        cache_size: int = 256,
        max_cache_bytes: int = 2**28,
        cache_dir: str | Path | None = None,
        max_cache_dir_bytes: int = 2**30,
    ) -> None:
        check_backend_name(backend)
        if num_threads < 1 or not timeout_s > 0 or cache_size < 0:
            raise InvalidRequest(
                "num_threads must be at least 1, timeout_s above 0 and cache_size at least 0, not"
                f" {num_threads!r}, {timeout_s!r} and {cache_size!r}"
            )
        if num_processes < 1 or max_memory_bytes < 1 or max_constraint_bytes < 1:
            raise InvalidRequest(
                "num_processes, max_memory_bytes and max_constraint_bytes must be at least 1, not"
                f" {num_processes!r}, {max_memory_bytes!r} and {max_constraint_bytes!r}"
            )
        if max_cache_bytes < 0 or max_cache_dir_bytes < 0:
            raise InvalidRequest(
                "max_cache_bytes and max_cache_dir_bytes must be at least 0, not"
                f" {max_cache_bytes!r} and {max_cache_dir_bytes!r}"
            )
        if cache_dir == "":
            raise InvalidRequest("cache_dir is empty; write '.' for the working folder")
        self.vocabulary = vocabulary
        self._backend: BackendName = backend
        self._timeout_s = timeout_s
        self._max_constraint_bytes = max_constraint_bytes
        self._disk = (
            None
            if cache_dir is None
            else DiskCache(Path(cache_dir), vocabulary, max_cache_dir_bytes)
        )
        self._backends = Backends(vocabulary)
        self._wide_rows = WideRows(vocabulary)
        self._workers = WorkerPool(vocabulary, WorkerLimits(timeout_s, max_memory_bytes))
        self._num_processes = num_processes
        # what the lock guards: compiles in flight, those begun, and the results kept
        self._lock = threading.Lock()
        self._in_flight: dict[str, Job] = {}
        self._begun: set[str] = set()
        self._cache = MemoryCache(cache_size, max_cache_bytes)
        self._digests: OrderedDict[str, str] = OrderedDict()  # of constraints as they were written
        self._is_closed = False
        self.counts = CompileCounts()
        steps = Steps(self._begin, self._compile_here, self._finish, self._move_on, _do_nothing)
        limit_s = min(timeout_s, _PATIENCE_S)
        self._threads = CompileThreads(
            "compile", num_threads, steps, limit_s=limit_s, idle_s=_UNUSED_S
        )
        self._slow_threads: CompileThreads | None = None

    def warm_up(self) -> None:
        """Start building what the first constraint would wait for, half a second or more.

        Tables of the vocabulary, and the threads that ask grammars; returns at once.
        """
        self.submit(Regex("[a-z]*"))

    def submit(
        self, constraint: Constraint, backend: BackendName | None = None
    ) -> Future[CompiledGrammar]:
        """Start compiling, or share what is being or has been compiled; returns at once.

        Each call is for one matcher: what many of them take is built meanwhile. Every error, of
        validation too, arrives through the future, which is shared with others and cannot be
        cancelled. Raises InvalidRequest only for an unknown backend or what is no constraint.
        """
        name: BackendName = backend or self._backend
        check_backend_name(name)
        if not isinstance(constraint, Constraint):
            raise InvalidRequest(
                "a constraint is a JsonSchema, Regex, Choice, Grammar, StructuralTag or Tools, not "
                f"{constraint!r}"
            )
        try:
            job = self._job(constraint, name)
            is_for_threads = is_quick(name, constraint)
        except StructspecError as error:
            return _failed(error)
        except RecursionError:
            return _failed(GrammarError(TOO_DEEP))
        except TypeError as error:
            return _failed(GrammarError(f"the constraint is not made of text: {error}"))
        with self._lock:
            if self._is_closed:
                return _failed(closed())
            future = self._cache.get(job.key)
            if future is None and job.key in self._in_flight:
                future = self._in_flight[job.key].future
            self.counts.asked(is_hit=future is not None)
            if future is None:
                future = job.future
                future.set_running_or_notify_cancel()  # from here on nobody can cancel it
                self._in_flight[job.key] = job
                (self._threads if is_for_threads else self._slow()).put(job)
        future.add_done_callback(_expect_matcher)
        return future

    async def compile(
        self, constraint: Constraint, backend: BackendName | None = None
    ) -> CompiledGrammar:
        """Compile without blocking the event loop; raises what the future of `submit` would."""
        return await asyncio.wrap_future(self.submit(constraint, backend))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up what has not begun, end the processes and the idle threads; idempotent."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            given_up = [self._in_flight.pop(key) for key in self._in_flight.keys() - self._begun]
            slow = self._slow_threads
        for job in given_up:
            job.future.set_exception(closed())
        self._workers.close()
        for threads in (self._threads, slow):
            if threads is not None:
                threads.close()

    def _job(self, constraint: Constraint, name: BackendName) -> Job:
        """Name and size a compile; raises where the constraint is not even text."""
        written = constraint.key
        num_characters = sum(map(len, written))
        if num_characters > self._max_constraint_bytes:
            raise GrammarError(
                f"the constraint has {num_characters} characters, more than the"
                f" {self._max_constraint_bytes} that max_constraint_bytes allows"
            )
        digest = self._digest(constraint, digest_of(written))
        return Job(f"{name} {digest}", digest, constraint, name, num_characters)

    def _digest(self, constraint: Constraint, written: str) -> str:
        """The digest without annotations; remembered, for it means walking through the schema."""
        with self._lock:
            if written in self._digests:
                self._digests.move_to_end(written)
                return self._digests[written]
        digest = constraint_digest(constraint)
        with self._lock:
            self._digests[written] = digest
            if len(self._digests) > _NUM_DIGESTS:
                self._digests.popitem(last=False)
        return digest

    def _slow(self) -> CompileThreads:
        """The threads that wait for processes, started on first use; the lock is held."""
        if self._slow_threads is None:
            steps = Steps(
                self._note_begun,
                self._compile_elsewhere,
                self._finish,
                self._move_on,
                lambda: self._workers.end_unused(_UNUSED_S),
            )
            self._slow_threads = CompileThreads(
                "processes", self._num_processes, steps, limit_s=math.inf, idle_s=_UNUSED_S
            )
        return self._slow_threads

    def _begin(self, job: Job) -> bool:
        self._backends.get(job.backend, job.constraint)  # slow the first time: before the clock
        return self._note_begun(job)

    def _note_begun(self, job: Job) -> bool:
        with self._lock:
            if job.key not in self._in_flight:
                return False
            self._begun.add(job.key)
            return True

    def _compile_here(self, job: Job) -> CompiledGrammar:
        if (compiled := self._read(job)) is None:
            compiled = self._backends.compile(job.backend, job.constraint)
            if self._disk is not None and (packed := compiled.pack()) is not None:
                self._disk.write(job.backend, job.digest, packed)
        compiled.wide_row = self._wide_rows.of(job.constraint)
        return compiled

    def _compile_elsewhere(self, job: Job) -> CompiledGrammar:
        if (compiled := self._read(job)) is None:
            packed = self._workers.compile(job.backend, job.constraint)
            if self._disk is not None:
                self._disk.write(job.backend, job.digest, packed)
            compiled = self._unpack(packed, job)
        compiled.wide_row = self._wide_rows.of(job.constraint)
        return compiled

    def _read(self, job: Job) -> CompiledGrammar | None:
        """The grammar from disk, if there is one that the library takes."""
        packed = None if self._disk is None else self._disk.read(job.backend, job.digest)
        if packed is None:
            return None
        try:
            return self._unpack(packed, job)
        except ValueError:  # GrammarError is one too
            logger.warning("a grammar kept on disk cannot be read; it is compiled anew")
            return None

    def _unpack(self, packed: Packed, job: Job) -> CompiledGrammar:
        """The grammar, by the backend that the report names."""
        name = packed.report.backend
        check_backend_name(name)
        return self._backends.get(cast(BackendName, name), job.constraint).unpack(packed)

    def _move_on(self, job: Job) -> None:
        """What takes too long in a thread is tried in a process, where it can be stopped."""
        if self._timeout_s <= _PATIENCE_S or job.backend in ONLY_IN_THREADS:
            seconds = min(self._timeout_s, _PATIENCE_S)
            self._finish(job, CompileTimeout(over_time(seconds)))
            return
        with self._lock:
            if not self._is_closed:
                self._slow().put(job, is_slow=True)
                return
        self._finish(job, closed())

    def _finish(self, job: Job, result: CompiledGrammar | StructspecError) -> None:
        """Hand over the result and keep it, if it is one."""
        with self._lock:
            self._begun.discard(job.key)
            if self._in_flight.pop(job.key, None) is None:
                return
            if not isinstance(result, StructspecError):
                self._cache.put(job.key, job.future, result.num_bytes)
        self.counts.finished(result)
        if isinstance(result, StructspecError):
            job.future.set_exception(result)
        else:
            job.future.set_result(result)


def _failed(error: StructspecError) -> Future[CompiledGrammar]:
    future: Future[CompiledGrammar] = Future()
    future.set_exception(error)
    return future


def _expect_matcher(future: Future[CompiledGrammar]) -> None:
    if future.exception() is None:
        future.result().expect()


def _do_nothing() -> None:
    """Threads cost nothing while they wait."""
