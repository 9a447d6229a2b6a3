"""Words that a text must not contain, however tokens spell it: which tokens would complete one.

An Aho-Corasick automaton (CACM 18(6), 1975) over the words' bytes keeps, of all that was written,
the longest beginning of a word that the text ends with. For `bad` and `dog`, behind `…ba`:

    tokens that hold a word themselves       always forbidden: `badge`, `hotdog`
    tokens that begin with the rest of one   here those with `d`
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from structspec.grammars.base import Row
from structspec.vocabulary import Vocabulary

START = 0  # the state of a text that ends with no beginning of a word
FOUND = -1  # of one that contains a word
_MAX_ROWS = 256  # kept at once; states are as many as the words' bytes


class WordAutomaton:
    """Where in which words a text is; immutable once made."""

    def __init__(self, words: Sequence[bytes]) -> None:
        self._next: list[dict[int, int]] = [{}]
        self._shorter = [START]  # by state: of the longest other beginning that it ends with
        self._rests: list[list[bytes]] = [[]]  # by state: of the words that begin with it
        self._is_found = [False]
        for word in words:
            self._add(word)
        self._link()

    def _add(self, word: bytes) -> None:
        state = START
        for place, byte in enumerate(word, 1):
            following = self._next[state].get(byte)
            if following is None:
                following = self._next[state][byte] = len(self._next)
                self._next.append({})
                self._shorter.append(START)
                self._rests.append([])
                self._is_found.append(False)
            state = following
            self._rests[state].append(word[place:])
        self._is_found[state] = True

    def _link(self) -> None:
        waiting = deque(self._next[START].values())
        while waiting:  # the shorter ones first
            state = waiting.popleft()
            for byte, following in self._next[state].items():
                self._shorter[following] = self._step(self._shorter[state], byte)
                waiting.append(following)
            self._is_found[state] |= self._is_found[self._shorter[state]]

    def _step(self, state: int, byte: int) -> int:
        while state and byte not in self._next[state]:
            state = self._shorter[state]
        return self._next[state].get(byte, START)

    def after(self, state: int, data: bytes) -> int:
        """The state behind these bytes, or FOUND."""
        for byte in data:
            state = self._step(state, byte)
            if self._is_found[state]:
                return FOUND
        return state

    def rests(self, state: int) -> Iterator[bytes]:
        """What would complete a word in this state."""
        while state:
            yield from self._rests[state]
            state = self._shorter[state]


class TokenIndex:
    """The text tokens of a vocabulary, to be found by their beginning or by what they contain."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        texts = sorted((data, i) for i, data in enumerate(vocabulary.token_bytes) if data)
        self._texts = [data for data, _ in texts]
        self._ids = np.array([token_id for _, token_id in texts], np.int64)
        self._all = b"".join(self._texts)
        self._ends = np.cumsum([len(data) for data in self._texts])
        self._longest = max(map(len, self._texts), default=0)

    def starting_with(self, data: bytes) -> NDArray[np.int64]:
        """The ids of tokens that begin with these bytes."""
        low = bisect_left(self._texts, data)
        return self._ids[low : bisect_right(self._texts, data + b"\xff" * self._longest)]

    def containing(self, data: bytes) -> NDArray[np.int64]:
        """The ids of tokens that hold these bytes."""
        found, place = [], self._all.find(data)
        while place >= 0:
            index = int(np.searchsorted(self._ends, place, side="right"))
            if place + len(data) <= self._ends[index]:
                found.append(index)
            place = self._all.find(data, place + 1)
        return np.unique(self._ids[found])


class BadWords:
    """Words, and the tokens of a vocabulary that complete one of them; used by one thread."""

    def __init__(self, words: Sequence[str], index: TokenIndex, vocabulary: Vocabulary) -> None:
        texts = [word.encode() for word in words]
        self._automaton = WordAutomaton(texts)
        self._index = index
        self._token_bytes = vocabulary.token_bytes
        self._always = np.ones(32 * vocabulary.num_words, bool)
        for text in texts:
            self._always[index.containing(text)] = False
        self._rows: dict[int, Row] = {}

    def after(self, state: int, token_id: int) -> int:
        """The state behind one more token; FOUND where a word is in the text then."""
        return self._automaton.after(state, self._token_bytes[token_id] or b"")

    def row(self, state: int) -> Row:
        """A row of all tokens that complete no word in this state; made once, then at hand."""
        row = self._rows.get(state)
        if row is None:
            allowed = self._always.copy()
            for rest in set(self._automaton.rests(state)):
                allowed[self._index.starting_with(rest)] = False
            if len(self._rows) >= _MAX_ROWS:
                self._rows.clear()
            row = self._rows[state] = np.packbits(allowed, bitorder="little").view(np.int32)
        return row
