"""Threads of our own that move many matchers and fill rows, without Python and without locks.

    remaining    counts down from the number of lines: who takes it below has a line to do
    done         counts up to it

A line is for one matcher: tokens to undo, known tokens to take, new ones to look at (in a row,
or as a choice of one, where their number is negative), a row to fill. With a limit it looks ahead:
new tokens are followed by those that are certain, and all of them undone. The caller does lines
too, and waits for lines that others have begun but never for a thread: one that wakes late, on a
busy machine, finds nothing left. The table of lines is kept from call to call, and `remaining` set
last, so that there is nothing that such a thread could do wrong. Lines are done from the last to
the first: those that took longest the time before are to stand last.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from array import array
from typing import Any

import llvmlite.binding  # type: ignore[import-untyped]
import numba
import numpy as np
from llvmlite import ir
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic

from structspec.grammars.llguidance_native import (
    CHECK,
    FORCED,
    MASK,
    MAY_END,
    TAKE,
    UNDO,
    library,
)

_u1, _i4, _i8 = numba.uint8, numba.int32, numba.int64  # addresses are numbers here
_mask = numba.types.ExternalFunction(MASK, _i4(_i8, _i8, _i8))
_take = numba.types.ExternalFunction(TAKE, _i4(_i8, _i8, _i8))
_undo = numba.types.ExternalFunction(UNDO, _i4(_i8, _i8))
_check = numba.types.ExternalFunction(CHECK, _i4(_i8, _i8, _i8))
_forced = numba.types.ExternalFunction(FORCED, _i4(_i8, _i8, _i8))
_may_end = numba.types.ExternalFunction(MAY_END, _u1(_i8))
_WAIT, _POST, _INIT, _YIELD = "sem_wait", "sem_post", "sem_init", "sched_yield"
_wait = numba.types.ExternalFunction(_WAIT, _i4(_i8))
_post = numba.types.ExternalFunction(_POST, _i4(_i8))
_yield = numba.types.ExternalFunction(_YIELD, _i4())

# numbers of the table: a head, what is to be done, what came of it
_REMAINING, _DONE, _SEMAPHORE = 0, 8, 16
_ROW_BYTES, _TOKENS, _KINDS, _VOCAB_SIZE = 24, 25, 26, 27
_LINES = 28
LINE = 7
_MATCHER, _ROW, _NUM_UNDONE, _FIRST_TOKEN, _NUM_KNOWN, _NUM_NEW, _LIMIT = range(LINE)
MAX_LINES = 1024  # of one call of the threads
MAX_AHEAD = 128  # tokens of a look ahead; more are looked at one request after the other
_TAKEN, _CYCLES, _FORCED = (_LINES + (LINE + column) * MAX_LINES for column in range(3))
_NUM_CERTAIN, _CERTAIN = (_LINES + (LINE + column) * MAX_LINES for column in (3, 4))
_SIZE = _CERTAIN + MAX_AHEAD * MAX_LINES

# what comes of new tokens: how many were taken, or which one of a choice; FAILED, if the library
# has; and what is added at a stop token that may stand there, or at one that is no text at all
FAILED, AT_STOP, AT_OTHER = -1, 1 << 32, 1 << 33
OTHER, TEXT, STOP = range(3)  # kinds of tokens


@intrinsic  # type: ignore[untyped-decorator]
def _add(typing_context: Any, address: Any, amount: Any) -> Any:
    """Add to a number in memory, and give what it was, in one step for all threads."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        return builder.atomic_rmw("add", place, arguments[1], "seq_cst")

    return _i8(_i8, _i8), codegen


@intrinsic  # type: ignore[untyped-decorator]
def _token_at(typing_context: Any, address: Any) -> Any:
    """The int32 number at an address."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(builder.inttoptr(arguments[0], ir.IntType(32).as_pointer()))

    return _i4(_i8), codegen


@intrinsic  # type: ignore[untyped-decorator]
def _byte_at(typing_context: Any, address: Any) -> Any:
    """The byte at an address."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(builder.inttoptr(arguments[0], ir.IntType(8).as_pointer()))

    return _u1(_i8), codegen


@intrinsic  # type: ignore[untyped-decorator]
def _cycles(typing_context: Any) -> Any:
    """The processor's clock, where it has one that can be read."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(64), ())
        name = "llvm.readcyclecounter"
        return builder.call(get_or_insert_function(builder.module, kind, name), ())

    return _i8(), codegen


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _is_shown(address: Any, table: Any, matcher: Any, place: Any, out: Any) -> Any:
    """Whether a row shows the token at an address, 0 or 1, or FAILED.

    Where text is forced it shows one token, the canonical, though more are valid.
    """
    table[out] = 0
    if _forced(matcher, address + 8 * out, 1) > 0:
        return 1 if table[out] == _token_at(place) else 0
    return min(_check(matcher, place, 1), 1)


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _look_and_take(
    address: Any, table: Any, matcher: Any, tokens: Any, num: Any, is_choice: Any, out: Any
) -> Any:
    """Take tokens up to the first that a row does not show, or of a choice the first that it does.

    What is no text is not taken but reported.
    """
    for index in range(num):
        place = tokens + 4 * index
        token = np.int64(_token_at(place))
        kind = _byte_at(table[_KINDS] + token) if 0 <= token < table[_VOCAB_SIZE] else OTHER
        if kind == OTHER:
            return index + AT_OTHER
        if kind == STOP:
            is_shown = _i4(_may_end(matcher))
            if is_shown:
                return index + AT_STOP
        else:
            is_shown = _is_shown(address, table, matcher, place, out)
            if is_shown == 1 and _take(matcher, place, 1) != 0:
                is_shown = FAILED
        if is_shown < 0:
            return FAILED
        if is_shown == is_choice:
            return index
    return num


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _take_certain(address: Any, table: Any, matcher: Any, most: Any, out: Any, index: Any) -> Any:
    """Take tokens that rows leave no choice about, and write them down; how many, or FAILED."""
    num = 0
    while num < most and not _may_end(matcher):
        table[out] = 0
        num_forced = _forced(matcher, address + 8 * out, 1)
        if num_forced < 0:
            return FAILED
        if num_forced == 0:
            break
        if _take(matcher, address + 8 * out, 1) != 0:
            return FAILED
        table[_CERTAIN + MAX_AHEAD * index + num] = table[out]
        num += 1
    return num


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _look_ahead(
    address: Any, table: Any, matcher: Any, tokens: Any, num_new: Any, limit: Any, index: Any
) -> Any:
    """Take new tokens, then certain ones, and undo all; how many of the new ones were taken."""
    out, num_certain = _FORCED + index, 0
    taken = _look_and_take(address, table, matcher, tokens, num_new, 0, out)
    if taken < 0:
        return FAILED
    if taken < AT_STOP:
        num_certain = _take_certain(address, table, matcher, limit - taken, out, index)
        if num_certain < 0:
            return FAILED
    table[_NUM_CERTAIN + index] = num_certain
    num_moved = taken % AT_STOP + num_certain
    if num_moved and _undo(matcher, num_moved) != 0:
        return FAILED
    return taken


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _do_line(address: Any, table: Any, line: Any, index: Any) -> Any:
    """Do one line; what came of its new tokens."""
    matcher, status, taken = table[line + _MATCHER], 0, 0
    tokens, num_known = table[_TOKENS] + 4 * table[line + _FIRST_TOKEN], table[line + _NUM_KNOWN]
    if table[line + _NUM_UNDONE]:
        status = _undo(matcher, table[line + _NUM_UNDONE])
    if status == 0 and num_known:
        status = _take(matcher, tokens, num_known)
    num_new, limit = table[line + _NUM_NEW], table[line + _LIMIT]
    tokens += 4 * num_known
    if status == 0 and limit:
        taken = _look_ahead(address, table, matcher, tokens, num_new, limit, index)
    elif status == 0 and num_new:
        is_choice, out = 1 if num_new < 0 else 0, _FORCED + index
        taken = _look_and_take(address, table, matcher, tokens, abs(num_new), is_choice, out)
    if status == 0 and taken >= 0 and table[line + _ROW]:
        status = _mask(matcher, table[line + _ROW], table[_ROW_BYTES])
    return taken if status == 0 else FAILED


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _do_lines(address: Any, table: Any) -> None:
    while True:
        index = _add(address + 8 * _REMAINING, -1) - 1
        if index < 0:
            return
        start = _cycles()
        table[_TAKEN + index] = _do_line(address, table, _LINES + LINE * index, index)
        table[_CYCLES + index] = _cycles() - start
        _add(address + 8 * _DONE, 1)


def _work(address: Any, table: Any) -> None:
    """What a thread does all its life."""
    while True:
        _wait(address + 8 * _SEMAPHORE)
        _do_lines(address, table)


def _lead(address: Any, table: Any, num_lines: Any, num_woken: Any) -> None:
    """What the caller does: it wakes some, does its share, and then waits."""
    for _ in range(num_woken):
        _post(address + 8 * _SEMAPHORE)
    _do_lines(address, table)
    while _add(address + 8 * _DONE, 0) < num_lines:
        _yield()


_TABLE = numba.types.CPointer(_i8)
_WORK, _LEAD = numba.void(_i8, _TABLE), numba.void(_i8, _TABLE, _i8, _i8)


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
    asked = (MASK, TAKE, UNDO, CHECK, FORCED, MAY_END)
    for owner, names in ((system, (_WAIT, _POST, _YIELD)), (library(), asked)):
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
        self._table = np.zeros(_SIZE, np.int64)
        self._numbers = memoryview(self._table.data).cast("B").cast("q")
        self._address = self._table.ctypes.data
        self._lock = threading.Lock()
        self._num_helpers = num_threads - 1
        _system().sem_init(ctypes.c_void_p(self._address + 8 * _SEMAPHORE), 0, 0)
        pointer = self._table.ctypes.data_as(_compiled("lead").argtypes[1])
        self._lead = functools.partial(_compiled("lead"), self._address, pointer)
        for _ in range(self._num_helpers):
            arguments = self._address, pointer
            thread = threading.Thread(target=_compiled("work"), args=arguments, daemon=True)
            thread.start()

    def do(
        self,
        lines: array[int],  # int64 [at most MAX_LINES, LINE]: matcher, row, undone, tokens …
        tokens: array[int],  # int32: what the lines point into
        kinds: array[int],  # uint8 [vocab_size]
        row_bytes: int,
        max_woken: int,
    ) -> tuple[list[int], list[int]]:
        """Do all lines, with at most so many threads besides this one.

        For each what came of its new tokens; and its cycles.
        """
        num_lines, numbers = len(lines) // LINE, self._numbers
        with self._lock:
            self._run(lines, tokens, kinds, row_bytes, max_woken)
            taken = numbers[_TAKEN : _TAKEN + num_lines].tolist()
            return taken, numbers[_CYCLES : _CYCLES + num_lines].tolist()

    def look(
        self, lines: array[int], tokens: array[int], kinds: array[int], max_woken: int
    ) -> tuple[list[int], list[list[int]]]:
        """Do lines that all look ahead; what came of the new tokens, and what is certain behind."""
        num_lines, numbers = len(lines) // LINE, self._numbers
        with self._lock:
            self._run(lines, tokens, kinds, 0, max_woken)
            taken = numbers[_TAKEN : _TAKEN + num_lines].tolist()
            counts = numbers[_NUM_CERTAIN : _NUM_CERTAIN + num_lines].tolist()
            starts = range(_CERTAIN, _SIZE, MAX_AHEAD)
            certain = [
                numbers[start : start + count].tolist() if count else []
                for start, count in zip(starts, counts, strict=False)
            ]
            return taken, certain

    def _run(
        self,
        lines: array[int],
        tokens: array[int],
        kinds: array[int],
        row_bytes: int,
        max_woken: int,
    ) -> None:
        num_lines, numbers = len(lines) // LINE, self._numbers
        numbers[_LINES : _LINES + len(lines)] = memoryview(lines)
        numbers[_ROW_BYTES], numbers[_TOKENS] = row_bytes, tokens.buffer_info()[0]
        numbers[_KINDS], numbers[_VOCAB_SIZE] = kinds.buffer_info()
        numbers[_DONE] = 0
        numbers[_REMAINING] = num_lines
        self._lead(num_lines, min(self._num_helpers, max_woken))


@functools.cache
def fill_threads(num_threads: int) -> FillThreads:
    """The threads of this process, one set for each number of them."""
    return FillThreads(num_threads)
