"""Threads of our own that undo, take and fill for many matchers, without Python and without locks.

    remaining    counts down from the number of lines: who takes it below has a line to do
    done         counts up to it

The caller does lines too, and waits for lines that others have begun but never for a thread: one
that wakes late, on a busy machine, finds nothing left. The table of lines is kept from call to
call, and `remaining` set last, so that there is nothing that such a thread could do wrong. Lines
are done from the last to the first: those that took longest the time before are to stand last.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Sequence
from typing import Any

import llvmlite.binding  # type: ignore[import-untyped]
import numba
import numpy as np
from llvmlite import ir
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic

from structspec.grammars.llguidance_native import MASK, TAKE, UNDO, library

_i4, _i8 = numba.int32, numba.int64  # addresses are numbers here
_mask = numba.types.ExternalFunction(MASK, _i4(_i8, _i8, _i8))
_take = numba.types.ExternalFunction(TAKE, _i4(_i8, _i8, _i8))
_undo = numba.types.ExternalFunction(UNDO, _i4(_i8, _i8))
_WAIT, _POST, _INIT, _YIELD = "sem_wait", "sem_post", "sem_init", "sched_yield"
_wait = numba.types.ExternalFunction(_WAIT, _i4(_i8))
_yield = numba.types.ExternalFunction(_YIELD, _i4())

_REMAINING, _DONE, _SEMAPHORE, _NUM_BYTES, _HEAD = 0, 8, 16, 24, 25  # numbers; lines follow
_LINE = 7
_MATCHER, _ROW, _NUM_UNDONE, _TOKENS, _NUM_TOKENS, _STATUS, _CYCLES = range(_LINE)
_MAX_LINES = 1024  # of one call of the threads

Line = tuple[int, int, int, int, int]  # a line up to its status


@intrinsic  # type: ignore[untyped-decorator]
def _add(typing_context: Any, address: Any, amount: Any) -> Any:
    """Add to a number in memory, and give what it was, in one step for all threads."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        return builder.atomic_rmw("add", place, arguments[1], "seq_cst")

    return _i8(_i8, _i8), codegen


@intrinsic  # type: ignore[untyped-decorator]
def _cycles(typing_context: Any) -> Any:
    """The processor's clock, where it has one that can be read."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(64), ())
        name = "llvm.readcyclecounter"
        return builder.call(get_or_insert_function(builder.module, kind, name), ())

    return _i8(), codegen


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _do_lines(address: Any, table: Any) -> None:
    while True:
        index = _add(address + 8 * _REMAINING, -1) - 1
        if index < 0:
            return
        line = _HEAD + _LINE * index
        matcher, status, start = table[line + _MATCHER], 0, _cycles()
        if table[line + _NUM_UNDONE]:
            status = _undo(matcher, table[line + _NUM_UNDONE])
        if status == 0 and table[line + _NUM_TOKENS]:
            status = _take(matcher, table[line + _TOKENS], table[line + _NUM_TOKENS])
        if status == 0:
            status = _mask(matcher, table[line + _ROW], table[_NUM_BYTES])
        table[line + _STATUS] = status
        table[line + _CYCLES] = _cycles() - start
        _add(address + 8 * _DONE, 1)


def _work(address: Any, table: Any) -> None:
    """What a thread does all its life."""
    while True:
        _wait(address + 8 * _SEMAPHORE)
        _do_lines(address, table)


def _lead(address: Any, table: Any, num_lines: Any) -> None:
    """What the caller does: its share, and then it waits."""
    _do_lines(address, table)
    while _add(address + 8 * _DONE, 0) < num_lines:
        _yield()


_TABLE = numba.types.CPointer(_i8)
_WORK, _LEAD = numba.void(_i8, _TABLE), numba.void(_i8, _TABLE, _i8)


@functools.cache
def _compiled(name: str) -> Any:
    function, signature = {"work": (_work, _WORK), "lead": (_lead, _LEAD)}[name]
    try:
        return numba.cfunc(signature, cache=True)(function).ctypes
    except RuntimeError:  # no folder to keep it in
        return numba.cfunc(signature)(function).ctypes


@functools.cache
def _system() -> Any:
    """The C library's semaphores; None where there are none, or no C interface of llguidance."""
    system = ctypes.CDLL(None)
    if library() is None or not all(hasattr(system, n) for n in (_WAIT, _POST, _INIT, _YIELD)):
        return None
    for owner, names in ((system, (_WAIT, _YIELD)), (library(), (MASK, TAKE, UNDO))):
        for name in names:
            address = ctypes.cast(getattr(owner, name), ctypes.c_void_p).value
            llvmlite.binding.add_symbol(name, address)
    return system


def can_fill() -> bool:
    """Whether there can be such threads."""
    return _system() is not None


class FillThreads:
    """Some threads, started with this object and never ended; one caller at a time has them."""

    def __init__(self, num_threads: int) -> None:
        """The caller is one of them."""
        self._table = np.zeros(_HEAD + _LINE * _MAX_LINES, np.int64)
        self._address = self._table.ctypes.data
        self._lock = threading.Lock()
        self._num_helpers = num_threads - 1
        self._semaphore = ctypes.c_void_p(self._address + 8 * _SEMAPHORE)
        _system().sem_init(self._semaphore, 0, 0)
        pointer = self._table.ctypes.data_as(_compiled("lead").argtypes[1])
        self._lead = functools.partial(_compiled("lead"), self._address, pointer)
        for _ in range(self._num_helpers):
            arguments = self._address, pointer
            thread = threading.Thread(target=_compiled("work"), args=arguments, daemon=True)
            thread.start()

    def do(self, lines: Sequence[Line], num_bytes: int) -> list[tuple[int, int]]:
        """Do all lines, with rows of so many bytes; for each, its status and what it took.

        A status other than 0 says that the library has failed; what it took is in cycles.
        """
        done: list[tuple[int, int]] = []
        with self._lock:
            for start in range(0, len(lines), _MAX_LINES):
                done += self._do(lines[start : start + _MAX_LINES], num_bytes)
        return done

    def _do(self, lines: Sequence[Line], num_bytes: int) -> list[tuple[int, int]]:
        written = self._table[_HEAD : _HEAD + _LINE * len(lines)].reshape(-1, _LINE)
        written[:, :_STATUS] = lines
        self._table[_NUM_BYTES] = num_bytes
        self._table[_DONE] = 0
        self._table[_REMAINING] = len(lines)
        for _ in range(min(self._num_helpers, len(lines) - 1)):
            _system().sem_post(self._semaphore)
        self._lead(len(lines))
        return [*map(tuple, written[:, _STATUS:].tolist())]


@functools.cache
def fill_threads(num_threads: int) -> FillThreads:
    """The threads of this process, one set for each number of them."""
    return FillThreads(num_threads)
