"""Markers and tokens as symbols: bytes of text, and special tokens, which no text spells."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from structspec.errors import InvalidRequest
from structspec.grammars.base import Row
from structspec.vocabulary import Vocabulary

Symbols = Sequence[int]  # a byte, or 256 + the id of a special token
SPECIAL = 256


class Spelling:
    """Spells markers in the tokens of a vocabulary; what it looks up was sorted once."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self.ids: dict[bytes, int] = {}  # the first of each text
        self._by_first: defaultdict[int, list[tuple[int, bytes]]] = defaultdict(list)
        for token_id, data in enumerate(vocabulary.token_bytes):
            if data:
                self.ids.setdefault(data, token_id)
                self._by_first[data[0]].append((token_id, data))

    def next_of(self, marker: Symbols, text: str) -> dict[int, int]:
        """The token to write next at every place of a marker.

        From its beginning these spell it as the tokenizer does; from other places, its rest. Raises
        InvalidRequest where no tokens do, or only such as end the output.
        """
        found: dict[int, int] = {}
        for place in range(len(marker)):
            position = place
            for token_id in self._spell(marker[place:]) if place not in found else ():
                if position in found:
                    break
                found[position] = token_id
                position += len(symbols_of(token_id, self._vocabulary))
        if len(found) < len(marker) or not set(self._vocabulary.stop_token_ids).isdisjoint(
            found.values()
        ):
            raise InvalidRequest(
                f"reasoning: no tokens of this model spell the marker {text!r}, or only such as end"
                " its output"
            )
        return found

    def all(self, text: bytes) -> list[int]:
        """The tokens that are this text; of a byte there may be two."""
        return [t for t, data in self._by_first.get(text[0], ()) if data == text]

    def along(self, text: bytes) -> list[int]:
        """The tokens that a text begins with, or that begin with the whole of it."""
        near = self._by_first.get(text[0], ())
        return [t for t, data in near if text.startswith(data) or data.startswith(text)]

    def around(self, text: bytes) -> list[int]:
        """The tokens that contain it."""
        return [t for t, data in enumerate(self._vocabulary.token_bytes) if data and text in data]

    def _spell(self, symbols: Symbols) -> list[int]:
        """Tokens for these symbols; none where there are none."""
        if symbols[0] >= SPECIAL:
            head, rest = [symbols[0] - SPECIAL], symbols[1:]
        else:
            text = leading_text(symbols)
            head, rest = self._spell_text(text), symbols[len(text) :]
        if not rest or not head:
            return head
        behind = self._spell(rest)
        return [*head, *behind] if behind else []

    def _spell_text(self, data: bytes) -> list[int]:
        if data in self.ids:
            return [self.ids[data]]
        try:
            spelled = self._vocabulary.encode_text(data.decode())
            if self._vocabulary.decode_bytes(spelled) == data:
                return spelled
        except ValueError:  # half a character, or no token for a part
            pass
        for length in range(len(data) - 1, 0, -1):
            if data[:length] in self.ids and (behind := self._spell_text(data[length:])):
                return [self.ids[data[:length]], *behind]
        return []


def symbols_of(token_id: int, vocabulary: Vocabulary) -> Symbols:
    """What a token stands for."""
    if vocabulary.is_text(token_id):
        return vocabulary.token_bytes[token_id] or b""
    return (SPECIAL + token_id,)


def to_symbols(text: str, vocabulary: Vocabulary) -> tuple[int, ...]:
    """A marker's text, the special tokens in it as such."""
    specials = {
        name: token_id
        for name, token_id in vocabulary.special_tokens.items()
        if name and not vocabulary.is_text(token_id)
    }
    if not specials:
        return tuple(text.encode())
    names = sorted(specials, key=len, reverse=True)
    parts = re.split(f"({'|'.join(map(re.escape, names))})", text)
    return tuple(
        symbol
        for index, part in enumerate(parts)
        for symbol in ((SPECIAL + specials[part],) if index % 2 else part.encode())
    )


def leading_text(symbols: Symbols) -> bytes:
    """The text before the first special token."""
    return bytes(symbols[: next((i for i, s in enumerate(symbols) if s >= SPECIAL), None)])


def trailing_text(symbols: Symbols) -> bytes:
    """The text behind the last special token."""
    return leading_text(symbols[::-1])[::-1]


def find_borders(symbols: Symbols) -> list[int]:
    """For each beginning, how long the longest shorter one that it ends with is (Knuth 1977)."""
    borders = [0] * len(symbols)
    for index in range(1, len(symbols)):
        length = borders[index - 1]
        while length and symbols[index] != symbols[length]:
            length = borders[length - 1]
        borders[index] = length + (symbols[index] == symbols[length])
    return borders


def row_of(token_ids: Iterable[int], vocabulary: Vocabulary) -> Row:
    """A row that allows these tokens."""
    bits = np.zeros(32 * vocabulary.num_words, np.uint8)
    bits[[*token_ids]] = 1
    row: Row = np.packbits(bits, bitorder="little").view(np.int32)
    return row
