"""Canonical spellings of forced text for threads that fill rows, remembered outside of Python.

llguidance spells forced text for every row on its way, from many threads at once. Asking Python
there would have them wait for each other: with 233 such questions a step of 128 requests took 33 ms
instead of 20 on two cores. So the library is given a compiled function that finds a text it has
seen in an array, and asks Python for others only. A word that was written just before forced text
is cut off first (`spelling_words.py`).

    memory        key | where the current generation begins | generation 0 | … | words
    generation    slots: where an entry is, 0 for none | entries
    entry         number of bytes | number of tokens | bytes | tokens

Entries are written once, and found only when they are whole. A full generation is left to its
readers, and the next one cleared: one has to be overtaken by thousands of new texts to be misled.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import threading
import weakref
from collections.abc import Callable
from itertools import count
from typing import Any

import llvmlite.binding  # type: ignore[import-untyped]
import numba
import numpy as np

from structspec.grammars.spelling_words import first_word, hashed, word_table
from structspec.vocabulary import Vocabulary, greedy_encoder

logger = logging.getLogger("structspec")

_NUM_SLOTS = 8192  # a power of two
_NUM_PROBES = 8
_ENTRIES_SIZE = 16 * _NUM_SLOTS  # int32 numbers
_GENERATION_SIZE = _NUM_SLOTS + _ENTRIES_SIZE
_NUM_GENERATIONS = 4
_HEADER_SIZE = 2
_WORDS = _HEADER_SIZE + _NUM_GENERATIONS * _GENERATION_SIZE
_LONGEST_KEPT = 200  # bytes: keys are short, and a long constant is not met again
_ASK = "structspec_spell_forced_text"

_INT, _INTS, _BYTES = numba.int32, numba.types.CPointer(numba.int32), numba.types.CPointer(numba.u1)
_ask = numba.types.ExternalFunction(_ASK, _INT(_INT, _BYTES, _INT, _INT, _INTS, _INT, _INT))
_ASKED = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    *(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32),
    *(ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32),
)


class SpellingMemory:
    """What one vocabulary's forced texts were spelled with; any thread may add to it."""

    def __init__(self, vocabulary: Vocabulary, key: int) -> None:
        self._encode_text = vocabulary.encode_text
        self._token_bytes = vocabulary.token_bytes  # not the vocabulary: it is to end before this
        self._lock = threading.Lock()
        self._generation = 0
        self._end = _HEADER_SIZE + _NUM_SLOTS  # of the entries of the current generation
        words = word_table(vocabulary.token_bytes, self._spell_whole)
        self.memory = np.zeros(_WORDS + len(words), np.int32)
        self.memory[:_HEADER_SIZE] = key, _HEADER_SIZE
        self.memory[_WORDS:] = words

    def spell(self, data: bytes) -> list[int]:
        """The canonical tokens of a text, to be found by the compiled function from now on."""
        token_ids = self._spell_whole(data)
        if len(data) <= _LONGEST_KEPT:
            with self._lock:
                slot = self._write(data, token_ids)
            with self._lock:  # what was written before is seen before what is written now
                self.memory[slot[0]] = slot[1]
        return token_ids

    def _spell_whole(self, data: bytes) -> list[int]:
        token_ids = self._encode_text(data.decode())
        if b"".join(self._token_bytes[i] or b"" for i in token_ids) != data:
            return self._spell_greedily(data.decode())  # a tokenizer that loses text
        return token_ids

    @functools.cached_property
    def _spell_greedily(self) -> Callable[[str], list[int]]:
        return greedy_encoder(self._token_bytes)

    def _write(self, data: bytes, token_ids: list[int]) -> tuple[int, int]:
        """A new entry: its slot and its place."""
        entry = np.array([len(data), len(token_ids), *data, *token_ids], np.int32)
        start = _HEADER_SIZE + self._generation * _GENERATION_SIZE
        slot = self._free_slot(start, data)
        if slot is None or self._end + len(entry) > start + _GENERATION_SIZE:
            self._generation = (self._generation + 1) % _NUM_GENERATIONS
            start = _HEADER_SIZE + self._generation * _GENERATION_SIZE
            self.memory[start : start + _NUM_SLOTS] = 0
            self.memory[1] = start
            self._end = start + _NUM_SLOTS
            slot = self._free_slot(start, data)
            assert slot is not None
        place, self._end = self._end, self._end + len(entry)
        self.memory[place : self._end] = entry
        return slot, place

    def _free_slot(self, start: int, data: bytes) -> int | None:
        first = hashed(np.frombuffer(data, np.uint8), 0, len(data))
        slots = (start + (first + n) % _NUM_SLOTS for n in range(_NUM_PROBES))
        return next((slot for slot in slots if self.memory[slot] == 0), None)


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _spell(memory: Any, text: Any, length: Any, tokens: Any, room: Any) -> Any:
    """The tokens of a text: their number, negative where room is short."""
    begin, word = first_word(memory, _WORDS, text, length)
    num_words = 1 if begin else 0
    if num_words and room:
        tokens[0] = word
    start, first = memory[1], hashed(text, begin, length)
    for n in range(_NUM_PROBES):
        place = memory[start + (first + n) % _NUM_SLOTS]
        if place == 0:
            break
        if memory[place] != length - begin:
            continue
        is_same = True
        for i in range(length - begin):
            is_same &= memory[place + 2 + i] == text[begin + i]
        if is_same:
            num_tokens = memory[place + 1]
            if num_words + num_tokens > room:
                return -num_words - num_tokens
            for i in range(num_tokens):
                tokens[num_words + i] = memory[place + 2 + length - begin + i]
            return num_words + num_tokens
    return _ask(memory[0], text, begin, length, tokens, num_words, room)


def _tokenize(
    memory: Any, text: Any, length: Any, tokens: Any, room: Any, add_special: Any, parse: Any
) -> Any:
    """As llama.cpp's function."""
    return _spell(memory, text, length, tokens, room)


def _tokenize_for_c(memory: Any, text: Any, length: Any, tokens: Any, room: Any) -> Any:
    """As llguidance's C interface wants it: the number is positive, and may exceed the room."""
    return abs(_spell(memory, text, np.int32(length), tokens, np.int32(room)))


_memories: dict[int, SpellingMemory] = {}
_keys: weakref.WeakKeyDictionary[Vocabulary, int] = weakref.WeakKeyDictionary()
_numbers = count(1)


@_ASKED  # type: ignore[untyped-decorator]
def _answer(
    key: int, text: int, begin: int, end: int, tokens: int, num_before: int, room: int
) -> int:
    """What the compiled function asks for; called on threads that hold no lock of Python's.

    The tokens of the bytes from `begin` to `end`, behind as many as stand there before.
    """
    try:
        token_ids = _memories[key].spell(ctypes.string_at(text + begin, end - begin))
    except Exception:  # there is nobody to raise it to: text that is not spelled is not forced
        logger.exception("the tokenizer failed on text that a grammar forces")
        return 0
    if num_before + len(token_ids) > room:
        return -num_before - len(token_ids)
    found = np.array(token_ids, np.int32)
    ctypes.memmove(tokens + num_before * found.itemsize, found.ctypes.data, found.nbytes)
    return num_before + len(token_ids)


@functools.cache
def _compiled(is_for_c: bool) -> Any:
    address = ctypes.cast(_answer, ctypes.c_void_p).value
    llvmlite.binding.add_symbol(_ASK, address)
    function = _tokenize_for_c if is_for_c else _tokenize
    size = numba.int64
    signature = (
        size(_INTS, _BYTES, size, _INTS, size)
        if is_for_c
        else _INT(_INTS, _BYTES, _INT, _INTS, _INT, numba.u1, numba.u1)
    )
    try:
        return numba.cfunc(signature, cache=True)(function)
    except RuntimeError:  # no folder to keep it in
        return numba.cfunc(signature)(function)


def spelling_function(vocabulary: Vocabulary, *, is_for_c: bool = False) -> tuple[int, int]:
    """The addresses of a vocabulary's memory and of the function that spells text by it.

    Both hold for as long as the vocabulary does. The function is one of llama.cpp's form, or one
    for llguidance's C interface.
    """
    key = _keys.get(vocabulary)
    if key is None:
        key = _keys[vocabulary] = next(_numbers)
        _memories[key] = SpellingMemory(vocabulary, key)
        weakref.finalize(vocabulary, _memories.pop, key, None).atexit = False  # threads may go on
    return int(_memories[key].memory.ctypes.data), int(_compiled(is_for_c).address)
