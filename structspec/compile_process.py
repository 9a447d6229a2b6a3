"""What runs in a worker process: it compiles what it is sent, within limits, until its parent ends.

parent                                 worker
  vocabulary and limits, once      →
  backend and constraint           →
                                   ←   None: it is there
                                   ←   the backend that "auto" means
                                   ←   None: its library is loaded
                                   ←   the packed grammar
An error in place of one of these is the last message.
"""

from __future__ import annotations

import ctypes
import math
import os
import pickle
import queue
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar

from structspec.constraint import TOO_DEEP, Choice, Constraint
from structspec.errors import (
    EngineError,
    GrammarError,
    StructspecError,
    UnsupportedConstraint,
)
from structspec.grammars.base import Backend, CompiledGrammar, Packed
from structspec.grammars.router import Backends, LibraryName, choose
from structspec.settings import BackendName
from structspec.vocabulary import Vocabulary, greedy_encoder

# Half of what a thread has: what can be compiled here does not overflow the parent's stack.
_STACK_BYTES = 4 * 2**20
_MAX_PACKED_BYTES = 64 * 2**20
_ARENA_BYTES = 2**27  # addresses that malloc reserves for a thread, most of them never touched
_READY: set[LibraryName] = set()  # libraries that this process has compiled with
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """What one compile may use."""

    timeout_s: float
    max_memory_bytes: int


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """What a worker is told first."""

    vocabulary: Vocabulary
    limits: WorkerLimits

    @classmethod
    def of(cls, vocabulary: Vocabulary, limits: WorkerLimits) -> WorkerSetup:
        """A tokenizer does not cross processes, so the vocabulary goes without."""
        return cls(replace(vocabulary, encode_text=_cannot_encode), limits)


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one compile; a worker that `is_spent` holds memory it cannot give back."""

    result: Packed | StructspecError
    is_spent: bool


def main(file_descriptor: int) -> None:
    """Serve jobs from a connection; the process ends with it, whatever it is doing."""
    _end_with_parent()
    connection = Connection(file_descriptor)
    jobs: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.stack_size(_STACK_BYTES)
    threading.Thread(target=_work, args=(connection, jobs), daemon=True).start()
    with suppress(EOFError, OSError):
        while True:
            jobs.put(connection.recv_bytes())
    os._exit(0)  # the parent is gone, and nobody waits for what is being compiled


def _work(connection: Connection, jobs: queue.SimpleQueue[bytes]) -> None:
    setup: WorkerSetup = pickle.loads(jobs.get())
    encode_text = greedy_encoder(setup.vocabulary.token_bytes)
    backends = Backends(replace(setup.vocabulary, encode_text=encode_text))
    while True:
        name, constraint = pickle.loads(jobs.get())
        connection.send(None)
        for message in _answers(backends, name, constraint, setup.limits):
            connection.send(message)


def _answers(
    backends: Backends, name: BackendName, constraint: Constraint, limits: WorkerLimits
) -> Iterator[LibraryName | StructspecError | Answer | None]:
    """The messages about one job, each when it is due."""
    _limit_cpu(limits)
    library = _attempt(lambda: choose(name, constraint)[0], limits)
    yield library
    if isinstance(library, StructspecError):
        return
    backend = _attempt(lambda: _ready(backends, library, constraint), limits)
    if isinstance(backend, StructspecError):
        yield backend
        return
    yield None
    if library == "llguidance":  # its parent is to build it again, with no limit of its own
        num_bytes = limits.max_memory_bytes // 4 + _ARENA_BYTES
        limits = replace(limits, max_memory_bytes=min(num_bytes, limits.max_memory_bytes))
    yield _compile(backends, name, constraint, limits)


def _ready(backends: Backends, library: LibraryName, constraint: Constraint) -> Backend:
    """A backend that has compiled: what it allocates once is not to count as a constraint's.

    Thread-local data that finds no memory ends a process without a word.
    """
    backend = backends.get(library, constraint)
    if library not in _READY:
        backend.compile(Choice(("ab", "ac")))
        _READY.add(library)
    return backend


def _compile(
    backends: Backends, name: BackendName, constraint: Constraint, limits: WorkerLimits
) -> Answer:
    num_bytes_before = _num_bytes("VmSize")
    _limit_cpu(limits)
    _limit_memory(num_bytes_before + limits.max_memory_bytes)
    result = _attempt(lambda: _pack(backends.compile(name, constraint)), limits)
    _limit_memory(resource.RLIM_INFINITY)
    num_kept = _num_bytes("VmSize") - num_bytes_before
    return Answer(result, is_spent=num_kept > limits.max_memory_bytes // 4)


def _pack(compiled: CompiledGrammar) -> Packed:
    packed = compiled.pack()
    assert packed is not None, "what cannot be packed is not compiled in another process"
    if len(packed.data) > _MAX_PACKED_BYTES:
        raise UnsupportedConstraint(
            f"it compiles to {len(packed.data) >> 20} MB, more than the {_MAX_PACKED_BYTES >> 20}"
            " that may come back from a compile process; make it smaller"
        )
    return packed


def _attempt(call: Callable[[], _T], limits: WorkerLimits) -> _T | StructspecError:
    """The result, or the error as the parent is to raise it."""
    try:
        return call()
    except StructspecError as error:
        return error
    except RecursionError:
        return GrammarError(TOO_DEEP)
    except Exception as error:
        _limit_memory(resource.RLIM_INFINITY)  # words need some, too
        if isinstance(error, MemoryError) or "bad_alloc" in str(error):
            return out_of_memory(limits)
        return EngineError(f"compiling failed: {type(error).__name__}: {error}")


def out_of_memory(limits: WorkerLimits) -> UnsupportedConstraint:
    """What to say to a constraint that needs more than there is."""
    return UnsupportedConstraint(
        f"compiling it takes more than {limits.max_memory_bytes >> 20} MB of memory;"
        " make it smaller or raise max_memory_bytes"
    )


def _end_with_parent() -> None:
    """Ask Linux for a kill then, for a library that keeps Python from noticing; others: see main.

    It comes when the thread that started this process ends, which waits for it all its life.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1: PR_SET_PDEATHSIG


def _limit_cpu(limits: WorkerLimits) -> None:
    """Let the kernel end this process should its parent not do so in time."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    num_cores = os.cpu_count() or 1  # a library's threads may use them all
    seconds = usage.ru_utime + usage.ru_stime + limits.timeout_s * num_cores
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds) + 1, hard))


def _limit_memory(num_bytes: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    with suppress(ValueError, OSError):  # not every system has this limit
        resource.setrlimit(resource.RLIMIT_AS, (num_bytes, hard))


def _num_bytes(field: str) -> int:
    """A size of this process, where the system tells; else 0."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    line = next(line for line in status.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def _cannot_encode(text: str) -> list[int]:
    raise NotImplementedError("a tokenizer does not cross processes")
