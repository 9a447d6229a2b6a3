"""What followers of one grammar are copied from: made when first wanted, on another thread."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import numpy as np

from structspec.grammars.base import MatcherFailed
from structspec.grammars.llguidance_followers import Follower
from structspec.grammars.llguidance_native import NativeMatcher
from structspec.vocabulary import Vocabulary

logger = logging.getLogger("structspec")

_WALK_LENGTH = 64  # tokens
_NUM_TRIED = 32  # allowed tokens among which a walk looks for a word, as most text has them
_LONGEST_START = 500  # bytes that all texts of a grammar begin with


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
