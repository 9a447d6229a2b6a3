"""Worker processes for compiles that may run away: killed when over time, started anew when needed.

A worker is a plain new interpreter, no fork: a fork of a process with threads may hang. It ends
when its connection closes, so it never outlives this process, however that ends.
"""

from __future__ import annotations

import json
import multiprocessing
import pickle
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from multiprocessing.spawn import get_executable
from typing import Any

from structspec.compile_process import Answer, WorkerLimits, WorkerSetup, out_of_memory
from structspec.constraint import Constraint, JsonSchema
from structspec.errors import (
    Cancelled,
    CompileTimeout,
    EngineError,
    StructspecError,
    UnsupportedConstraint,
)
from structspec.grammars.base import Packed
from structspec.settings import BackendName
from structspec.vocabulary import Vocabulary

_START_TIMEOUT_S = 120.0  # imports and a tokenizer, on a machine that has other things to do
_PROGRAM = """
import json, sys
sys.path[:] = json.loads(sys.argv[2])
from structspec.compile_process import main
main(int(sys.argv[1]))
"""
_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


class _WorkerDied(Exception):
    """The process ended before it answered; `status` is as `Popen.returncode`."""

    def __init__(self, status: int, is_started: bool) -> None:
        super().__init__(status)
        self.status = status
        self.is_started = is_started


class _Worker:
    """One process; used by one thread at a time, `kill` by any."""

    def __init__(self, setup: bytes) -> None:
        self._connection, theirs = multiprocessing.Pipe()
        path = json.dumps(sys.path)
        self._process = subprocess.Popen(
            [get_executable(), "-c", _PROGRAM, str(theirs.fileno()), path],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # the libraries' own words; ours are in the error
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # Ctrl-C is for the parent
        )
        theirs.close()
        self._setup: bytes | None = setup
        self._is_started = False
        self.unused_since = time.monotonic()

    def compile(self, backend: BackendName, constraint: Constraint, timeout_s: float) -> Answer:
        """Compile; raises CompileTimeout, _WorkerDied, or what kept the library from starting."""
        try:
            if self._setup is not None:
                self._connection.send_bytes(self._setup)
                self._setup = None
            self._connection.send_bytes(pickle.dumps((backend, constraint)))
            self._receive(_START_TIMEOUT_S, "start")  # the process is there
            self._is_started = True
            self._receive(timeout_s, None)  # it has chosen a backend
            self._receive(_START_TIMEOUT_S, "load a grammar library")
            answer: Answer = self._receive(timeout_s, None)
        except (EOFError, OSError):
            raise _WorkerDied(self._process.wait(), self._is_started) from None
        self.unused_since = time.monotonic()
        return answer

    def _receive(self, timeout_s: float, what: str | None) -> Any:
        """The next message; raises it, if it is an error, and where none comes in time."""
        if not self._connection.poll(timeout_s):
            if what is None:
                raise CompileTimeout(over_time(timeout_s))
            raise EngineError(f"a compile process did not {what} in {timeout_s:g} s")
        message = self._connection.recv()
        if isinstance(message, StructspecError):
            raise message
        return message

    def kill(self) -> None:
        """End the process, whatever it does; a compile waiting for it sees _WorkerDied."""
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        """Kill it and let go of the connection."""
        self.kill()
        self._connection.close()


class WorkerPool:
    """As many processes as there are compiles at once, each kept for the next; thread-safe."""

    def __init__(self, vocabulary: Vocabulary, limits: WorkerLimits) -> None:
        self._limits = limits
        self._setup = pickle.dumps(WorkerSetup.of(vocabulary, limits))
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._is_closed = False

    def compile(self, backend: BackendName, constraint: Constraint) -> Packed:
        """Compile in another process; raises StructspecError, Cancelled when closed meanwhile.

        A worker that somebody else ended is replaced and the compile tried once more.
        """
        if isinstance(constraint, JsonSchema):
            constraint = replace(constraint, schema=constraint.text)  # a Mapping may not pickle
        try:
            return self._compile_once(backend, constraint)
        except _WorkerDied as died:
            if -died.status not in _FROM_OUTSIDE:
                raise self._verdict(died) from None
        try:
            return self._compile_once(backend, constraint)
        except _WorkerDied as died:
            raise self._verdict(died) from None

    def end_unused(self, unused_s: float) -> None:
        """End the workers that had nothing to do for that long."""
        limit = time.monotonic() - unused_s
        with self._lock:
            unused = [worker for worker in self._idle if worker.unused_since <= limit]
            self._idle = [worker for worker in self._idle if worker.unused_since > limit]
        for worker in unused:
            worker.end()

    def close(self) -> None:
        """End all workers; compiles in them fail with Cancelled."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
            busy = list(self._busy)
        for worker in idle:
            worker.end()
        for worker in busy:
            worker.kill()  # the thread that waits for it closes the connection

    def _compile_once(self, backend: BackendName, constraint: Constraint) -> Packed:
        worker = self._take()
        is_usable = False
        try:
            answer = worker.compile(backend, constraint, self._limits.timeout_s)
            is_usable = not answer.is_spent
        finally:
            self._give_back(worker, is_usable)
        if isinstance(answer.result, StructspecError):
            raise answer.result
        return answer.result

    def _take(self) -> _Worker:
        """The worker used last, or a new one."""
        with self._lock:
            if self._is_closed:
                raise closed()
            worker = self._idle.pop() if self._idle else _Worker(self._setup)
            self._busy.add(worker)
        return worker

    def _give_back(self, worker: _Worker, is_usable: bool) -> None:
        with self._lock:
            self._busy.discard(worker)
            if is_usable and not self._is_closed:
                self._idle.append(worker)
                return
        worker.end()

    def _verdict(self, died: _WorkerDied) -> StructspecError:
        """What the end of a process says about the constraint it compiled."""
        if self._is_closed:
            return closed()
        status = died.status
        if -status == signal.SIGXCPU:
            return CompileTimeout(over_time(self._limits.timeout_s))
        if -status == signal.SIGABRT:  # how native code ends when memory is refused
            return out_of_memory(self._limits)
        how = f"status {status}"
        with suppress(ValueError):
            how = signal.Signals(-status).name
        if not died.is_started:
            return EngineError(f"a compile process ended while it started ({how})")
        return UnsupportedConstraint(
            f"compiling it ended the compile process ({how}); make it smaller or simpler"
        )


def over_time(timeout_s: float) -> str:
    """What to say to a constraint that takes too long."""
    return (
        f"the grammar took more than {timeout_s:g} s to compile;"
        " make it smaller or simpler, or raise timeout_s"
    )


def closed() -> Cancelled:
    """What a compile fails with that was not done when the compiler was closed."""
    return Cancelled("the grammar compiler was closed")
