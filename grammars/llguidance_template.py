"""What followers of one grammar are copied from, and made like new by."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from structspec.grammars.drafts import is_allowed
from structspec.grammars.llguidance_native import NativeMatcher
from structspec.vocabulary import Vocabulary

_WALK_LENGTH = 64  # tokens
_NUM_TRIED = 32  # allowed tokens among which a walk looks for a word, as most text has them
_LONGEST_START = 500  # tokens that all texts of a grammar begin with


class Template:
    """A matcher that has walked along some text before; one thread at a time may use it.

    So its lexer, which copies have too, knows most states.
    """

    def __init__(self, build: Callable[[], NativeMatcher], vocabulary: Vocabulary) -> None:
        """Takes some 10 ms; raises MatcherFailed where the C interface cannot hold the grammar."""
        self._vocabulary = vocabulary
        self._rows = np.zeros((1, vocabulary.num_words), np.int32)  # whatever a fill writes
        walked = build()
        fresh = walked.copy()
        self._walk(walked)
        # what all texts begin with; None if that is not known
        self._start = self._find_start(walked)
        self._original = fresh if self._start is None else walked

    def copy(self) -> NativeMatcher:
        """A matcher at the start of the text; takes some 100 us."""
        return self._original.copy()

    def renew(self, matcher: NativeMatcher) -> bool:
        """Have a copy that was moved be as good as a new one, if that can be; some 30 us.

        Raises MatcherFailed where the library has given it up.
        """
        if self._start is None:
            return False
        matcher.reset()
        for token_id in self._start:
            matcher.take(token_id)
        matcher.fill(self._rows[0])
        matcher.reset()
        return True

    def _walk(self, matcher: NativeMatcher) -> None:
        chooser = random.Random(0)
        for _ in range(_WALK_LENGTH):
            matcher.fill(self._rows[0])
            allowed = self._allowed()
            if not len(allowed):
                return
            some = chooser.choices(allowed, k=_NUM_TRIED)
            words = (i for i in some if (self._vocabulary.token_bytes[i] or b"").strip().isalpha())
            token_id = int(next(words, some[0]))
            if token_id in self._vocabulary.stop_token_ids:
                return
            matcher.take(token_id)

    def _find_start(self, matcher: NativeMatcher) -> list[int] | None:
        """Tokens of the bytes that all texts begin with; the matcher is back before them.

        The library keeps a mask where nothing is forced, and copies have it too. One computed
        behind these tokens is true for all texts.
        """
        start: list[int] = []
        matcher.reset()
        while len(start) < _LONGEST_START:
            matcher.fill(self._rows[0])
            allowed = self._allowed()
            if self._may_differ(allowed):
                matcher.reset()
                return start
            # one token alone is the next of all texts, and so is the byte that all begin with
            data = self._vocabulary.token_bytes
            alone = (i for i in allowed if len(allowed) == 1 or len(data[i] or b"") == 1)
            token_id = next(alone, None)
            if token_id is None:
                return None
            matcher.take(int(token_id))
            start.append(int(token_id))
        return None

    def _may_differ(self, allowed: Any) -> bool:
        """Whether texts may end here, or go on with different bytes."""
        stops = self._vocabulary.stop_token_ids
        if not len(allowed) or any(is_allowed(self._rows, 0, token_id) for token_id in stops):
            return True
        first = (self._vocabulary.token_bytes[allowed[0]] or b"")[:1]
        return any((self._vocabulary.token_bytes[i] or b"")[:1] != first for i in allowed)

    def _allowed(self) -> Any:
        """The tokens of the row that was filled last, as an array."""
        bits = np.unpackbits(self._rows.view(np.uint8), bitorder="little")
        return np.flatnonzero(bits.view(np.bool_))  # of truth values they are found sooner
