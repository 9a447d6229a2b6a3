"""Matchers at the start of one grammar's text, to be copied: a copy costs microseconds.

Copies of one original share its lexer, with all the states that any of them has found, behind a
lock: their rows cannot be filled at once. So a grammar has as many originals as its requests can
keep busy, one for every two of them and at most one for each thread, built on those threads.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import count

from llguidance import LLMatcher

_NUM_COPIES = 2  # of one original in use, before another is wanted
_MAX_COPIES = 8  # before another is waited for
_WORN = 256  # copies after which an original is replaced: what its lexer has found only grows


class Original:
    """A matcher that never moves, and the copies of it that are in use."""

    __slots__ = ("_users", "has_failed", "library", "num_made", "number")
    _numbers = count()

    def __init__(self, library: LLMatcher) -> None:
        self.library = library
        self.number = next(self._numbers)
        self.num_made = 0
        self.has_failed = False  # in a copy: its lexer, which they share, is of no more use
        self._users: list[None] = []  # as a counter whose steps no other thread can split

    @property
    def num_users(self) -> int:
        """How many objects that were noted are alive."""
        return len(self._users)

    @property
    def is_good(self) -> bool:
        """Whether it is to be copied as long as it pleases."""
        return self.num_made < _WORN and not self.has_failed

    def note_user(self, user: object) -> None:
        """Count an object for as long as it lives."""
        self.num_made += 1
        self._users.append(None)
        weakref.finalize(user, self._users.pop).atexit = False


class Originals:
    """The originals of one grammar; thread-safe."""

    def __init__(
        self,
        build: Callable[[], LLMatcher],
        first: LLMatcher,
        threads: ThreadPoolExecutor,
        max_originals: int,
    ) -> None:
        self._build = build
        self._threads = threads
        self._max_originals = max_originals
        self._lock = threading.Lock()
        self._built = [Original(first)]
        self._ordered: set[Future[LLMatcher]] = set()
        self._num_expected = 0

    def expect(self) -> None:
        """Say that one more copy will be asked for soon; returns at once."""
        with self._lock:
            self._num_expected += 1
            self._order()

    def take(self) -> Original:
        """The one to copy next; waits for another only where all are much used."""
        while True:
            with self._lock:
                self._num_expected = max(1, self._num_expected)
                self._order()
                least = min(self._built, key=lambda original: original.num_users, default=None)
                if least is not None and (least.num_users < _MAX_COPIES or not self._ordered):
                    self._num_expected -= 1
                    return least
                ordered = set(self._ordered)
            wait(ordered, return_when=FIRST_COMPLETED)

    def _order(self) -> None:
        """Have as many built as are wanted."""
        self._join()
        good = [original for original in self._built if original.is_good]
        num_users = self._num_expected + sum(original.num_users for original in good)
        num_wanted = min(self._max_originals, -(-num_users // _NUM_COPIES))
        for _ in range(num_wanted - len(good) - len(self._ordered)):
            self._ordered.add(self._threads.submit(self._build))
        self._join()

    def _join(self) -> None:
        """Those that are finished join; worn ones leave once there are others."""
        for future in [future for future in self._ordered if future.done()]:
            self._ordered.remove(future)
            self._built.append(Original(future.result()))
        good = [original for original in self._built if original.is_good]
        self._built = good or [original for original in self._built if not original.has_failed]
