"""Where forced text can be cut, so that what was written just before it need not be known.

The library spells forced text together with the token before it, which is most often a word of the
model's own, and new:

    ky", "quantity":        is `ky`, which is a token, and `", "quantity": `, which was seen before

A vocabulary in which no token has a letter or digit with a quote behind it spells both sides of
that place by themselves. The table is one array of int32 numbers:

    size of slots | for each byte: may be cut before it | slots: where an entry is | entries
    entry         number of bytes | token id | bytes
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

_ENDS = b'",}]:'  # that JSON has behind a word or a number
_LONGEST_WORD = 32  # bytes
_CUTS, _SLOTS = 1, 257  # where these begin
_TRIED_ENDS = (b'", "name": "', b'"}, {"', b", ", b"}")
_NUM_TRIED = 64  # words


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def hashed(text: Any, start: Any, end: Any) -> Any:
    """FNV-1a of some bytes of a text."""
    value = np.uint32(2166136261)
    for i in range(start, end):
        value = np.uint32(np.uint32(value ^ np.uint32(text[i])) * np.uint32(16777619))
    return np.int64(value)


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _is_of_word(byte: Any) -> Any:
    return 48 <= byte < 58 or 65 <= byte < 91 or 97 <= byte < 123


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def first_word(memory: Any, words: Any, text: Any, length: Any) -> Any:
    """The bytes of the word that a text begins with, 0 if it is not to be cut; and its token.

    The table begins at `words`.
    """
    end = 1
    while end < length and not (memory[words + _CUTS + text[end]] and _is_of_word(text[end - 1])):
        end += 1
        if end > _LONGEST_WORD:
            return 0, 0
    if end >= length:
        return 0, 0
    size = memory[words]
    slot = hashed(text, 0, end) % size
    while memory[words + _SLOTS + slot] != 0:
        place = words + memory[words + _SLOTS + slot]
        is_same = memory[place] == end
        if is_same:
            for i in range(end):
                is_same &= memory[place + 2 + i] == text[i]
        if is_same:
            return end, memory[place + 1]
        slot = (slot + 1) % size
    return 0, 0


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _enter(words: Any, data: Any, ends: Any, ids: Any) -> None:
    """Write the entries of words that stand one behind the other."""
    size, start = words[0], 0
    place = _SLOTS + size
    for index in range(len(ids)):
        end = ends[index]
        slot = hashed(data, start, end) % size
        while words[_SLOTS + slot] != 0:
            slot = (slot + 1) % size
        words[_SLOTS + slot] = place
        words[place], words[place + 1] = end - start, ids[index]
        for i in range(start, end):
            words[place + 2 + i - start] = data[i]
        place, start = place + 2 + end - start, end


def word_table(
    token_bytes: Sequence[bytes | None], spell: Callable[[bytes], list[int]]
) -> NDArray[np.int32]:
    """The table of a vocabulary; it cuts nothing where `spell` does not bear that out."""
    ids: dict[bytes, int] = {}
    joined = {end for end in _ENDS if not _has_joined(token_bytes, end)}
    for token_id, data in enumerate(token_bytes):
        if data and len(data) <= _LONGEST_WORD and data[-1:].isalnum() and data.isascii():
            ids.setdefault(data, token_id)
    if not joined or not _spells_apart(ids, joined, spell):
        return np.zeros(_SLOTS, np.int32)
    size, data = 2 * len(ids) + 1, b"".join(ids)
    words = np.zeros(_SLOTS + size + 2 * len(ids) + len(data), np.int32)
    words[0] = size
    for end in joined:
        words[_CUTS + end] = 1
    lengths = np.fromiter(map(len, ids), np.int64, len(ids))
    values = np.fromiter(ids.values(), np.int64, len(ids))
    _enter(words, np.frombuffer(data, np.uint8), lengths.cumsum(), values)
    return words


def _has_joined(token_bytes: Sequence[bytes | None], end: int) -> bool:
    """Whether a token has this byte behind a letter or digit."""
    find = re.compile(b"[0-9A-Za-z]" + re.escape(bytes([end]))).search
    return any(data is not None and end in data and find(data) for data in token_bytes)


def _spells_apart(
    ids: dict[bytes, int], ends: set[int], spell: Callable[[bytes], list[int]]
) -> bool:
    """Whether the tokenizer does so too with some words."""
    rests = [rest for rest in _TRIED_ENDS if rest[0] in ends]
    some = [*ids.items()][:: max(1, len(ids) // _NUM_TRIED)]
    try:
        return bool(rests) and all(
            spell(data + rest) == [token_id, *spell(rest)]
            for index, (data, token_id) in enumerate(some)
            for rest in [rests[index % len(rests)]]
        )
    except Exception:  # a tokenizer that fails is asked, and its failure logged, when it has to be
        return False
