"""The tokens of a vocabulary by what they may do to the end of a text."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from structspec.vocabulary import Vocabulary

_RUNS = re.compile(rb'([A-Za-z\x80-\xff]+)|([0-9]+)|([ \t\r\n]+)|([^"\\{}\[\]:,.\-])')


class EndingTokens:
    """What is looked up of a vocabulary to end texts in time; thread-safe."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.vocab_size = vocabulary.vocab_size
        self._ids: dict[bytes, list[int]] = {}
        for token_id, data in enumerate(vocabulary.token_bytes):
            if data is not None:
                self._ids.setdefault(data, []).append(token_id)
        self.shape_of = lru_cache(maxsize=vocabulary.vocab_size)(self._shape_of)

    def ids(self, text: bytes) -> list[int]:
        """The tokens that spell a text."""
        return self._ids.get(text, [])

    def bytes_of(self, token_id: int) -> bytes:
        """The text of a token, empty where it has none."""
        data = self.vocabulary.token_bytes[token_id] if 0 <= token_id < self.vocab_size else None
        return data or b""

    @cached_property
    def plain(self) -> NDArray[np.bool_]:
        """[vocab_size]: whole characters that leave a JSON string as open as it was."""
        return self._where(lambda data: not _is_special(data) and _is_whole(data))

    @cached_property
    def partial(self) -> NDArray[np.bool_]:
        """[vocab_size]: the same, with half a character at an end."""
        return self._where(lambda data: not _is_special(data) and not _is_whole(data))

    @cached_property
    def escaping(self) -> NDArray[np.bool_]:
        """[vocab_size]: with a backslash and no quote that is not behind one."""
        return self._where(lambda data: b"\\" in data and b'"' not in data.replace(b'\\"', b""))

    def stays_in_string(self, token_id: int) -> bool:
        """Whether behind a token of text in a JSON string the same string goes on."""
        return any(kind[token_id] for kind in (self.plain, self.partial, self.escaping))

    def _where(self, holds: Callable[[bytes], bool]) -> NDArray[np.bool_]:
        tokens = self.vocabulary.token_bytes
        return np.array([data is not None and holds(data) for data in tokens], np.bool_)

    def _shape_of(self, token_id: int) -> bytes:
        """Its text with a letter for each run of letters, of digits, of blanks."""
        return _RUNS.sub(_letter, self.bytes_of(token_id))


def _letter(run: re.Match[bytes]) -> bytes:
    return (b"a", b"0", b" ", b"a")[(run.lastindex or 1) - 1]


def _is_special(data: bytes) -> bool:
    return b'"' in data or b"\\" in data or min(data) < 0x20


def _is_whole(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
