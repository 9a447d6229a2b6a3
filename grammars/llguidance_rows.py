"""Followers: matchers of llguidance's C interface that fill many requests' rows in parallel.

A follower is shown its request's tokens when the next row is wanted, and not before: so a step's
tokens are taken on the threads that fill.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import Any

import numpy as np

from structspec.grammars.base import Bitmask, MatcherFailed
from structspec.grammars.llguidance_native import NativeMatcher
from structspec.grammars.llguidance_threads import Line, fill_threads
from structspec.vocabulary import Vocabulary

logger = logging.getLogger("structspec")

_WALK_LENGTH = 64  # tokens
_NUM_TRIED = 32  # allowed tokens among which a walk looks for a word, as most text has them
_LONGEST_START = 500  # bytes that all texts of a grammar begin with


class Follower:
    """A copy of a template that is moved behind a request's tokens when a row is wanted.

    As in `LLGuidanceMatcher`, a mask the library has kept may be taken for that of another branch:
    once the text has left that of the last row and goes on, a new copy takes its place.
    """

    __slots__ = (
        "_is_astray",
        "_num_filled",
        "_num_taken",
        "_num_undone",
        "_template",
        "cycles",
        "library",
    )

    def __init__(self, template: NativeMatcher) -> None:
        self._template = template
        self.cycles = 0  # that its last row took: the next is often as dear
        self._start()

    def _start(self) -> None:
        self.library = self._template.copy()
        self._num_taken = self._num_undone = self._num_filled = 0
        self._is_astray = False

    def has_row_at(self, num_tokens: int) -> bool:
        """Whether the last row it filled is that behind so many tokens."""
        return self._num_filled == self._num_taken == num_tokens and not self._is_astray

    def note_rollback(self, num_tokens: int) -> None:
        """The text has been cut to so many tokens."""
        if num_tokens < self._num_taken:
            self._num_undone += self._num_taken - num_tokens
            self._num_taken = num_tokens
        self._is_astray |= num_tokens < self._num_filled

    def work(self, token_ids: list[int]) -> tuple[int, int, list[int]]:
        """What a row behind these tokens takes: the matcher, how many to undo, and what to take.

        It is to be done, before anything else is asked.
        """
        if self._is_astray and len(token_ids) > self._num_taken:
            self._start()
        work = self.library.handle, self._num_undone, token_ids[self._num_taken :]
        self._num_undone = 0
        self._num_taken = self._num_filled = len(token_ids)
        return work


Row = tuple[Follower, int, list[int]]  # who fills it, where it is, and the tokens before it


def fill_rows(rows: Sequence[Row], bitmask: Bitmask, num_threads: int) -> list[int]:
    """Fill all rows and say which, by index, the library has failed on."""
    order = sorted(range(len(rows)), key=lambda index: rows[index][0].cycles)
    rows = [rows[index] for index in order]
    works = [follower.work(token_ids) for follower, _, token_ids in rows]
    tokens = np.array([token_id for *_, taken in works for token_id in taken], np.uint32)
    first, row_bytes, next_token = bitmask.ctypes.data, bitmask.strides[0], tokens.ctypes.data
    lines: list[Line] = []
    for (handle, num_undone, taken), (_, row, _) in zip(works, rows, strict=True):
        lines.append((handle, first + row * row_bytes, num_undone, next_token, len(taken)))
        next_token += tokens.itemsize * len(taken)
    num_bytes = bitmask.shape[1] * bitmask.itemsize
    failed = []
    done = fill_threads(num_threads).do(lines, num_bytes)
    for index, (follower, *_), (status, cycles) in zip(order, rows, done, strict=True):
        follower.cycles = cycles
        if status != 0:
            failed.append(index)
    return failed


class Template:
    """What the followers of one grammar are copies of; made on another thread when first wanted.

    It has walked along some text before, so that its lexer, which they copy too, knows most states.
    """

    def __init__(
        self, build: Callable[[], NativeMatcher], threads: Executor, vocabulary: Vocabulary
    ) -> None:
        self._build = build
        self._threads = threads
        self._vocabulary = vocabulary
        self._lock = threading.Lock()
        self._made: Future[NativeMatcher | None] | None = None

    def follower(self) -> Follower | None:
        """A follower at the start of the text, once there is a template to copy."""
        with self._lock:
            if self._made is None:
                self._made = self._threads.submit(self._make)
        if not self._made.done():
            return None
        template = self._made.result()
        return None if template is None else Follower(template)

    def wait(self) -> None:
        """Until there is a template, if one was wanted."""
        if self._made is not None:
            self._made.result()

    def _make(self) -> NativeMatcher | None:
        try:
            walked = self._build()
            fresh = walked.copy()
            self._walk(walked)
            return walked if self._start(walked) else fresh
        except MatcherFailed:
            logger.warning("llguidance's C interface cannot hold a grammar", exc_info=True)
            return None

    def _walk(self, matcher: NativeMatcher) -> None:
        row = np.zeros(self._vocabulary.num_words, np.int32)
        chooser = random.Random(0)
        for _ in range(_WALK_LENGTH):
            matcher.fill(row)
            some = chooser.choices(_allowed(row), k=_NUM_TRIED)
            words = (i for i in some if (self._vocabulary.token_bytes[i] or b"").strip().isalpha())
            token_id = next(words, some[0])
            if token_id in self._vocabulary.stop_token_ids:
                return
            matcher.take(token_id)

    def _start(self, matcher: NativeMatcher) -> bool:
        """Back to the start, so that the mask it keeps is true for all texts; whether that is so.

        The library keeps a mask where nothing is forced, and copies have it too. So one is computed
        at the end of the bytes that all texts begin with.
        """
        row, vocabulary = np.zeros(self._vocabulary.num_words, np.int32), self._vocabulary
        matcher.reset()
        for _ in range(_LONGEST_START):
            matcher.fill(row)
            allowed = _allowed(row)
            begins = {(vocabulary.token_bytes[i] or b"")[:1] for i in allowed}
            if len(begins) > 1 or not set(allowed).isdisjoint(vocabulary.stop_token_ids):
                matcher.reset()
                return True
            # one token alone is the next of all texts, and so is the byte that all begin with
            alone = (i for i in allowed if vocabulary.token_bytes[i] in begins)
            token_id = allowed[0] if len(allowed) == 1 else next(alone, None)
            if token_id is None:
                return False
            matcher.take(token_id)
        return False


def _allowed(row: Any) -> list[int]:
    return np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist()
