"""What runs in a worker process: it compiles what it is sent, within limits, until its parent ends.

parent                                 worker
  vocabulary and limits, once      →
  library and constraint           →
                                   ←   ready to compile (None), or why it never will be
                                   ←   the packed grammar or an error
"""

from __future__ import annotations

import math
import os
import pickle
import queue
import resource
import threading
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from structspec.constraint import TOO_DEEP, Constraint
from structspec.errors import (
    EngineError,
    GrammarError,
    StructspecError,
    UnsupportedConstraint,
)
from structspec.grammars.base import Packed
from structspec.grammars.router import Backends, LibraryName
from structspec.vocabulary import Vocabulary

# Half of what a thread has: what can be compiled here does not overflow the parent's stack.
_STACK_BYTES = 4 * 2**20
_MAX_PACKED_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """What one compile may use."""

    timeout_s: float
    max_memory_bytes: int


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """What a worker is told first."""

    token_bytes: tuple[bytes | None, ...]
    stop_token_ids: tuple[int, ...]
    limits: WorkerLimits


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one compile; a worker that `is_spent` holds memory it cannot give back."""

    result: Packed | StructspecError
    is_spent: bool


def main(file_descriptor: int) -> None:
    """Serve jobs from a connection; the process ends with it, whatever it is doing."""
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
    whole = Backends(Vocabulary(setup.token_bytes, setup.stop_token_ids, _cannot_encode))
    # What packs as text needs no tokens, and tokenising cannot be had here.
    bare = Backends(Vocabulary.bytes())
    while True:
        library, constraint = pickle.loads(jobs.get())
        backends = bare if library == "llguidance" else whole
        error = _make_ready(backends, library, constraint)
        connection.send(error)
        if error is None:
            connection.send(_compile(backends, library, constraint, setup.limits))


def _make_ready(
    backends: Backends, library: LibraryName, constraint: Constraint
) -> StructspecError | None:
    """Import the library and build its tokenizer: slow the first time, and nobody's compile."""
    try:
        backends.get(library, constraint)
    except StructspecError as error:
        return error
    except Exception as error:
        return EngineError(f"a compile process cannot start: {type(error).__name__}: {error}")
    return None


def _compile(
    backends: Backends, library: LibraryName, constraint: Constraint, limits: WorkerLimits
) -> Answer:
    num_bytes_before = _num_bytes("VmSize")
    _limit_cpu(limits)
    _limit_memory(num_bytes_before + limits.max_memory_bytes)
    result: Packed | StructspecError
    try:
        packed = backends.get(library, constraint).compile(constraint).pack()
        assert packed is not None, f"{library} cannot compile in another process"
        result = packed
    except StructspecError as error:
        result = error
    except RecursionError:
        result = GrammarError(TOO_DEEP)
    except Exception as error:
        _limit_memory(resource.RLIM_INFINITY)
        if isinstance(error, MemoryError) or "bad_alloc" in str(error):
            result = out_of_memory(limits)
        else:
            result = EngineError(f"compiling failed: {type(error).__name__}: {error}")
    _limit_memory(resource.RLIM_INFINITY)
    if isinstance(result, Packed) and len(result.data) > _MAX_PACKED_BYTES:
        result = UnsupportedConstraint(
            f"it compiles to {len(result.data) >> 20} MB, more than the {_MAX_PACKED_BYTES >> 20}"
            " that may come back from a compile process; make it smaller"
        )
    num_kept = _num_bytes("VmSize") - num_bytes_before
    return Answer(result, is_spent=num_kept > limits.max_memory_bytes // 4)


def out_of_memory(limits: WorkerLimits) -> UnsupportedConstraint:
    """What to say to a constraint that needs more than there is."""
    return UnsupportedConstraint(
        f"compiling it takes more than {limits.max_memory_bytes >> 20} MB of memory;"
        " make it smaller or raise max_memory_bytes"
    )


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
