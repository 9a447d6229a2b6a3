"""Bitmask rows that allow whatever a text of a grammar can be made of, wherever it stands.

[a-z ]{9}, 12 tokens     " a" "b" "B" ", " "\\n" "the" "é" "42" "." " c" <special> <stop>
its wide row               1   1   0   0    0     1     0   0    0   1       0       1

A draw from such a row that the grammar takes is what its own mask would have left, and one row
serves for every place in every text.
"""

from __future__ import annotations

from threading import Lock
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from structspec.constraint import Constraint
from structspec.grammars.alphabet import alphabet_of
from structspec.grammars.base import Row
from structspec.vocabulary import Vocabulary

_MIN_SHARE = 1 / 8  # of the tokens of text: a row that forbids fewer is not worth its place


class WideRows:
    """The wide rows of one vocabulary; equal ones are one array. Thread-safe.

    With 128 k tokens the first row takes tens of milliseconds, since it makes a table, others one.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._lock = Lock()
        self._made: WeakValueDictionary[frozenset[int], Row] = WeakValueDictionary()
        self._text: _Text | None = None

    def of(self, constraint: Constraint) -> Row | None:
        """A row [num_words] that allows what any row of this constraint's grammar does.

        None where it would forbid little, or where that is not known.
        """
        alphabet = alphabet_of(constraint)
        if alphabet is None or len(alphabet) == 256:
            return None
        with self._lock:
            row = self._made.get(alphabet)
            if row is None and (row := self._make(alphabet)) is not None:
                self._made[alphabet] = row
        return row

    def _make(self, alphabet: frozenset[int]) -> Row | None:
        if self._text is None:
            self._text = _Text(self._vocabulary)
        token_ids = self._text.tokens_of(alphabet)
        if len(token_ids) > (1 - _MIN_SHARE) * self._text.num_tokens:
            return None
        bits = np.zeros(32 * self._vocabulary.num_words, np.uint8)
        bits[token_ids] = 1
        bits[list(self._vocabulary.stop_token_ids)] = 1
        return np.packbits(bits, bitorder="little").view(np.int32)


class _Text:
    """Which bytes each token of text holds, as a set of 256 bits."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        texts = list(filter(None, vocabulary.token_bytes))
        self.num_tokens = len(texts)
        self._token_ids = np.flatnonzero([data is not None for data in vocabulary.token_bytes])
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        starts = np.cumsum(lengths) - lengths
        data = np.frombuffer(b"".join(texts), np.uint8)
        bits = np.uint64(1) << (data & 63).astype(np.uint64)
        self._sets = [
            np.bitwise_or.reduceat(np.where(data >> 6 == word, bits, np.uint64(0)), starts)
            for word in range(4 if texts else 0)
        ]

    def tokens_of(self, alphabet: frozenset[int]) -> NDArray[np.int64]:
        """The tokens that hold no other bytes."""
        foreign = np.zeros(self.num_tokens, np.uint64)
        for word, bits in enumerate(self._sets):
            others = sum(1 << bit for bit in range(64) if 64 * word + bit not in alphabet)
            foreign |= bits & np.uint64(others)
        is_known: NDArray[np.bool_] = foreign == 0
        return self._token_ids[is_known]
