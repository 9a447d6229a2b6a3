"""Followers that are there before a step wants them, made on other threads than the engine's.

    expect    a request is handed in      one more is to lie ready
    claim     it gets its matcher         takes one that lies ready, or waits in line
    give back it has ended                lies there till it is made like new for the next one

A grammar that one request wants is most often not wanted again, and a template takes ten times what
reading the grammar does. So there is none before a second request. The first gets the grammar read
again for itself, without a walk, once it has asked as often as only longer texts do.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future

from structspec.grammars.base import MatcherFailed
from structspec.grammars.llguidance_followers import Follower
from structspec.grammars.llguidance_native import NativeMatcher
from structspec.grammars.llguidance_template import Template
from structspec.vocabulary import Vocabulary

logger = logging.getLogger("structspec")

_NUM_ALONE = 16  # steps that a grammar's only request does without a follower
_NUM_SPARE = 2  # that lie ready for followers gone astray
_MAX_READY = 256  # of one grammar
_MAX_EARLY = 512  # that matchers of this process have: beyond, they get one when a step asks
_WORN = 32  # requests after which a follower is not used again: what its lexer has found only grows
_FOLLOWER_BYTES = 500_000  # copies of ten templates took 455 to 540 kB
_MAX_BYTES = 256 << 20  # of all that nobody uses, in this process
_MAX_IDLE_S = 60.0
_LOOK_EVERY_S = 0.1  # for what is to be freed

_in_use: list[None] = []  # as a counter whose steps no other thread can split


class Claim:
    """One matcher's right to a follower, which goes back to the pool when the claim ends."""

    __slots__ = ("__weakref__", "_num_asked", "_pool", "follower", "is_queued", "is_seen")

    def __init__(self, pool: FollowerPool) -> None:
        self._pool = pool
        self._num_asked = 0
        self.follower: Follower | None = None  # handed out by another thread
        self.is_queued = False
        self.is_seen = False  # the pool has counted it

    def ask(self) -> Follower | None:
        """The follower, if there is one by now; a step has a use for it."""
        if self.follower is None and not self.is_queued:
            self._num_asked += 1
            self._pool.queue(self, self._num_asked)
        return self.follower

    def change(self) -> Follower | None:
        """Another follower for one that has gone astray, if one is ready."""
        self._pool.give_back(self.take_away())
        self._pool.queue(self, _NUM_ALONE, is_again=True)
        return self.follower

    def give(self, follower: Follower) -> None:
        """Have this follower from now on."""
        self._pool.given.add(follower)
        _in_use.append(None)
        self.follower, self.is_queued = follower, False

    def take_away(self) -> Follower:
        """Have no follower any more; which it was."""
        follower, self.follower = self.follower, None
        assert follower is not None
        self._pool.given.discard(follower)
        _in_use.pop()
        return follower

    def __del__(self) -> None:
        if self.follower is not None:
            self._pool.give_back(self.take_away())


class FollowerPool:
    """The followers of one grammar that nobody has yet, or any more; thread-safe."""

    def __init__(
        self, build: Callable[[], NativeMatcher], threads: Executor, vocabulary: Vocabulary
    ) -> None:
        self._build = build
        self._threads = threads
        self._vocabulary = vocabulary
        self._lock = threading.Lock()
        self._template: Template | None = None
        self._ready: deque[Follower] = deque()
        self._used: deque[Follower] = deque()
        # held here too: a follower that is only reached from a request in a cycle would be freed
        # with it, and come back to life when its claim ends
        self.given: set[Follower] = set()
        self._queue: deque[weakref.ref[Claim]] = deque()
        self._num_expected = 0
        self._least_expected = 0  # since
        self._counted_from = 0.0
        self._num_seen = 0  # that had, or will have, a use for a follower
        self._job: Future[None] | None = None  # one at a time: nothing is copied by two threads
        self._has_failed = False
        self.last_used = 0.0  # seconds

    def expect(self) -> None:
        """Say that one more will be claimed soon; returns at once."""
        with self._lock:
            self.last_used = time.monotonic()
            if self.last_used > self._counted_from + _MAX_IDLE_S:
                # so many were there all the time: their requests have ended without a matcher
                self._num_expected -= self._least_expected
                self._least_expected, self._counted_from = self._num_expected, self.last_used
            self._num_expected += 1
            self._num_seen += 1
            self._order()

    def claim(self) -> Claim:
        """A matcher's claim; one that was expected gets its follower now or when it is made."""
        claim = Claim(self)
        with self._lock:
            self.last_used = time.monotonic()
            if self._num_expected:
                self._num_expected -= 1
                self._least_expected = min(self._least_expected, self._num_expected)
                claim.is_seen = True
                if self._num_seen > 1 and len(_in_use) + len(self._queue) < _MAX_EARLY:
                    self._queue_up(claim)
        return claim

    def queue(self, claim: Claim, num_asked: int, *, is_again: bool = False) -> None:
        """Have a claim wait for a follower, or get it now, if it is one to be made."""
        if claim.is_seen and not is_again and self._num_seen < 2 and num_asked < _NUM_ALONE:
            return
        with self._lock:
            self._num_seen += is_again or not claim.is_seen
            claim.is_seen = True
            if self._num_seen > 1 or num_asked >= _NUM_ALONE:
                self._queue_up(claim)

    def give_back(self, follower: Follower) -> None:
        """Take what is not used any more; takes no lock, since this may be called anywhere."""
        self._used.append(follower)

    def wait(self) -> None:
        """Until all is made that is wanted now."""
        while (job := self._job) is not None:
            job.result()

    @property
    def num_bytes(self) -> int:
        """About how much memory all takes that nobody uses."""
        num_matchers = len(self._ready) + len(self._used) + 2 * (self._template is not None)
        return _FOLLOWER_BYTES * num_matchers

    def free(self) -> None:
        """Forget all that nobody uses."""
        with self._lock:
            freed = [*self._ready, *self._used, self._template]
            self._ready.clear()
            self._used.clear()
            self._template = None
            self._num_expected = self._least_expected = self._num_seen = 0
        del freed  # here, where it keeps nobody waiting for the lock

    def _queue_up(self, claim: Claim) -> None:
        if self._has_failed:
            return
        if self._ready:
            claim.give(self._ready.popleft())
        else:
            claim.is_queued = True
            self._queue.append(weakref.ref(claim))
        self._order()

    def _order(self) -> None:
        if self._job is None and self._num_missing() > 0:
            self._job = self._threads.submit(self._make_missing)

    def _num_missing(self) -> int:
        while self._queue and self._queue[0]() is None:
            self._queue.popleft()
        if self._has_failed:
            return 0
        num_wanted = len(self._queue)
        if self._num_seen > 1:
            num_wanted += min(_MAX_READY, max(_NUM_SPARE, self._num_expected))
        return num_wanted - len(self._ready)

    def _make_missing(self) -> None:
        try:
            while self._is_missing():
                follower = self._made()
                with self._lock:
                    self._hand_out(follower)
        except Exception:  # the library's: its other interface does without
            logger.warning("llguidance's C interface cannot hold a grammar", exc_info=True)
            with self._lock:
                self._has_failed, self._job = True, None
        _SHELF.note(self)

    def _is_missing(self) -> bool:
        with self._lock:
            if self._num_missing() > 0:
                return True
            self._job = None
            return False

    def _made(self) -> Follower:
        """One more: one that was used, else a copy."""
        template = self._template
        if template is None and self._num_seen < 2:
            return Follower(self._build())
        if template is None:
            template = self._template = Template(self._build, self._vocabulary)
        while self._used:
            used = self._used.popleft()
            if used.num_uses < _WORN and _is_renewed(used, template):
                return used
        return Follower(template.copy())

    def _hand_out(self, follower: Follower) -> None:
        while self._queue:
            claim = self._queue.popleft()()
            if claim is not None:
                claim.give(follower)
                return
        self._ready.append(follower)


def _is_renewed(follower: Follower, template: Template) -> bool:
    try:
        if not template.renew(follower.library):
            return False
    except MatcherFailed:
        return False
    follower.begin()
    return True


class _Shelf:
    """The pools of this process with followers that nobody uses: the ones used last are kept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pools: weakref.WeakSet[FollowerPool] = weakref.WeakSet()
        self._next_look = 0.0

    def note(self, pool: FollowerPool) -> None:
        """Remember a pool; now and then free those that are too much or were not used for long."""
        now = time.monotonic()
        with self._lock:
            self._pools.add(pool)
            if now < self._next_look:
                return
            self._next_look = now + _LOOK_EVERY_S
            pools = sorted(self._pools, key=lambda each: each.last_used)
            num_bytes = sum(each.num_bytes for each in pools)
            for each in pools:
                if num_bytes > _MAX_BYTES or each.last_used < now - _MAX_IDLE_S:
                    num_bytes -= each.num_bytes
                    each.free()
                    self._pools.discard(each)


_SHELF = _Shelf()
