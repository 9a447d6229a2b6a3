"""The tokens of a vocabulary by what they may do to the end of a text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from structspec.bitmask import allocate_bitmask, pack_row
from structspec.vocabulary import Vocabulary

Bools = NDArray[np.bool_]
_SCALAR = re.compile(rb"\s*(true|false|null|-?\d+)\s*")
_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_LETTERS, _DIGITS, _BLANKS, _OTHERS = b"a0 #"  # stand for runs of bytes; what structures is itself
_MOST_SPELLED = 8  # bytes of one token
_STRUCTURE = b'"\\{}[]:,.-'


class EndingTokens:
    """What is looked up of a vocabulary to end texts in time; thread-safe.

    Made in some tens of milliseconds for 152 k tokens.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.vocab_size = vocabulary.vocab_size
        tokens = vocabulary.token_bytes
        self._first_ids: dict[bytes | None, int]
        self._first_ids = dict(zip(reversed(tokens), range(len(tokens) - 1, -1, -1), strict=True))
        self._more_ids: dict[bytes, list[int]] = {}  # of texts that several tokens spell
        if len(self._first_ids) < len(tokens):
            for token_id, data in enumerate(tokens):
                if data is not None and self._first_ids[data] != token_id:
                    self._more_ids.setdefault(data, []).append(token_id)
        texts = _Texts(tokens)
        is_special = texts.having(b'"\\' + bytes(range(0x20)))
        is_whole = ~texts.having(bytes(range(0x80, 0x100)))
        is_whole |= _where(tokens, ~is_whole, _is_whole)
        # whole characters that leave a JSON string as open as it was
        self.plain: Bools = texts.are_text & ~is_special & is_whole
        # the same, with half a character at an end
        self.partial: Bools = texts.are_text & ~is_special & ~is_whole
        # with a backslash and no quote that is not behind one
        self.escaping: Bools = _where(tokens, texts.having(b"\\"), _keeps_open)
        self._stays_in_string: Bools = self.plain | self.partial | self.escaping
        rows = [allocate_bitmask(1, self.vocab_size)[0] for _ in range(3)]
        for row, some in zip(
            rows, (self.partial, self.escaping, ~self._stays_in_string), strict=True
        ):
            pack_row(some, row)
        self.partial_row, self.escaping_row, self.other_row = rows
        self._shapes: NDArray[np.uint64] = texts.shapes()
        self.mean_length = texts.mean_length

    def ids(self, text: bytes) -> list[int]:
        """The tokens that spell a text."""
        first = self._first_ids.get(text)
        return [] if first is None else [first, *self._more_ids.get(text, ())]

    def bytes_of(self, token_id: int) -> bytes:
        """The text of a token, empty where it has none."""
        data = self.vocabulary.token_bytes[token_id] if 0 <= token_id < self.vocab_size else None
        return data or b""

    def stays_in_string(self, token_id: int) -> bool:
        """Whether behind a token of text in a JSON string the same string goes on."""
        return bool(self._stays_in_string[token_id])

    def is_scalar(self, token_id: int) -> bool:
        """Whether it is a whole number or literal of JSON, blanks around it aside."""
        return _SCALAR.fullmatch(self.bytes_of(token_id)) is not None

    def spelled(self, text: bytes) -> tuple[int, ...]:
        """A text in tokens, each as long as may be; nothing where that leads nowhere."""
        path: list[int] = []
        while text:
            lengths = range(min(len(text), _MOST_SPELLED), 0, -1)
            length = next((n for n in lengths if self.ids(text[:n])), 0)
            if not length:
                return ()
            path += self.ids(text[:length])[:1]
            text = text[length:]
        return tuple(path)

    def left_of(self, ending: tuple[int, ...], text: bytes) -> tuple[int, ...] | None:
        """What is left of an ending that begins with a text, if it does."""
        for place, token_id in enumerate(ending):
            part = self.bytes_of(token_id)
            if part.startswith(text):
                rest = ending[place + 1 :]
                if len(part) == len(text):
                    return rest
                left = self.ids(part[len(text) :])
                return (left[0], *rest) if left else None
            if not part or not text.startswith(part):
                return None
            text = text[len(part) :]
        return None

    def by_shape(self, token_ids: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Ascending tokens in groups that look alike, those of short shapes first."""
        shapes = self._shapes[token_ids]
        order = np.argsort(shapes, kind="stable")
        places = np.flatnonzero(np.diff(shapes[order])) + 1
        return np.split(token_ids[order], places) if len(token_ids) else []

    def longest_shape(self, some: Bools) -> int:
        """Of some tokens one that changes most between letters, digits, and what is neither."""
        token_ids = np.flatnonzero(some)
        return int(token_ids[(self._shapes[token_ids] >> np.uint64(56)).argmax()])

    def shape_of(self, token_id: int) -> int:
        """Equal for tokens that look alike, runs of letters, of digits, of blanks taken for one."""
        return int(self._shapes[token_id])


class _Texts:
    """The bytes of all tokens behind each other, and whose each of them is."""

    def __init__(self, tokens: Sequence[bytes | None]) -> None:
        self._num_tokens = len(tokens)
        self._bytes = np.frombuffer(b"".join(filter(None, tokens)), np.uint8)
        lengths = np.fromiter((len(data or b"") for data in tokens), np.int64, len(tokens))
        self.are_text: Bools = lengths > 0
        self.mean_length = float(lengths[self.are_text].mean()) if self.are_text.any() else 0.0
        self._owners = np.repeat(np.arange(len(tokens)), lengths)

    def having(self, some: bytes) -> Bools:
        """[num_tokens]: which of them have one of these bytes."""
        has = np.zeros(self._num_tokens, np.bool_)
        has[self._owners[np.isin(np.arange(256), [*some])[self._bytes]]] = True
        return has

    def shapes(self) -> NDArray[np.uint64]:
        """[num_tokens]: a hash of each text with one sign for each run of letters, of digits, …

        Its first byte is how many signs those are.
        """
        signs = np.array([_sign(byte) for byte in range(256)], np.uint8)[self._bytes]
        is_new = np.ones(len(signs), np.bool_)
        is_new[1:] = (signs[1:] != signs[:-1]) | (self._owners[1:] != self._owners[:-1])
        is_new |= np.isin(signs, [*_STRUCTURE])
        signs, owners = signs[is_new], self._owners[is_new]
        counts = np.bincount(owners, minlength=self._num_tokens)
        places = np.arange(len(signs)) - np.repeat(counts.cumsum() - counts, counts)
        factors = np.random.default_rng(0).integers(2**63, size=(256,), dtype=np.uint64)
        terms = factors[signs] * (factors[places % 256] | np.uint64(1)) ** np.uint64(3)
        hashes = np.zeros(self._num_tokens, np.uint64)
        np.add.at(hashes, owners, terms)
        return (np.minimum(counts, 255).astype(np.uint64) << np.uint64(56)) | hashes >> np.uint64(8)


def _sign(byte: int) -> int:
    if byte in _STRUCTURE:
        return byte
    character = chr(byte)
    if character.isascii() and not character.isalnum():
        return _BLANKS if character in " \t\r\n" else _OTHERS
    return _DIGITS if character.isascii() and character.isdigit() else _LETTERS


def _where(tokens: Sequence[bytes | None], among: Bools, holds: Callable[[bytes], bool]) -> Bools:
    """[num_tokens]: those of some of which it holds."""
    found = np.zeros(len(tokens), np.bool_)
    found[[i for i in np.flatnonzero(among).tolist() if holds(tokens[i] or b"")]] = True
    return found


def _keeps_open(data: bytes) -> bool:
    return b'"' not in _ESCAPED.sub(b"", data)


def _is_whole(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
