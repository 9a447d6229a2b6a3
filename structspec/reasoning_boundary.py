"""Where reasoning ends and the answer begins, token by token.

BEFORE ── start marker ──▶ REASONING ── end marker ──▶ BREAK ── line breaks ──▶ ANSWER
   └───────────────── anything else ──────────────────────┴── anything else ──────▲

Markers are compared as text, so it does not matter which tokens spell them; a special token inside
one stands for itself alone. A token may begin before the end marker, and may not reach beyond it:
the answer's first byte begins a token.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from structspec.errors import InvalidRequest
from structspec.grammars.base import Row
from structspec.vocabulary import Vocabulary

Symbols = Sequence[int]  # a byte of text, or 256 + the id of a special token

BEFORE, REASONING, BREAK, ANSWER = range(4)


class State(NamedTuple):
    """How far a text has come.

    `place` counts the symbols of the start marker that stand (BEFORE), or of the end marker at the
    end of the text (REASONING). In ANSWER it is 1 if the last token was the first of the answer.
    """

    phase: int
    place: int = 0


ENDED = State(ANSWER, 0)
ANSWERED = State(ANSWER, 1)


class Boundary:
    """The two markers in one vocabulary; immutable, shared by requests.

    A step costs what the token is long, rows are made once for each place in a marker.
    """

    def __init__(self, vocabulary: Vocabulary, start: str, end: str, line_breaks: int = 0) -> None:
        """Raises InvalidRequest where the tokens cannot spell a marker."""
        self._vocabulary = vocabulary
        self._named = frozenset(vocabulary.special_tokens.values())
        self._stops = frozenset(vocabulary.stop_token_ids)
        self._ids = {data: i for i, data in reversed([*enumerate(vocabulary.token_bytes)]) if data}
        self.start = to_symbols(start, vocabulary)
        self.end = to_symbols(end, vocabulary)
        assert self.end, "without an end marker nothing ends"
        self._borders = find_borders(self.end)
        self._reasoning = [State(REASONING, place) for place in range(len(self.end))]
        self._next_of_start = self._spell_from_all(self.start, start)
        self._next_of_end = self._spell_from_all(self.end, end)
        self.line_breaks = line_breaks
        breaks = (b"\n" * n for n in range(1, line_breaks + 1))
        self.break_ids = frozenset(self._ids[data] for data in breaks if data in self._ids)
        self.after_end = State(BREAK) if self.break_ids else ENDED
        self.break_row = self._row_of(self.break_ids)
        self._free = self._free_row()
        self._overrunning = self._find_overrunning()
        self._rows = [self._row_at(place) for place in range(len(self.end))]
        self._start_rows = [self._start_row_at(place) for place in range(len(self.start))]

    def advance(self, state: State, token_id: int) -> State | None:
        """The state behind one more token; None where it may not stand there.

        What may stand in the answer, or in place of a start marker, is not looked at.
        """
        if state.phase == ANSWER:
            return ENDED
        if state.phase == BREAK:
            return ENDED if token_id in self.break_ids else ANSWERED
        if state.phase == REASONING:
            return self._reason_on(state.place, token_id)
        symbols, rest = self.symbols_of(token_id), self.start[state.place :]
        if tuple(symbols[: len(rest)]) != rest[: len(symbols)]:
            return ANSWERED
        if len(symbols) < len(rest):
            return State(BEFORE, state.place + len(symbols))
        return self._state_behind(0, symbols[len(rest) :])

    def symbols_of(self, token_id: int) -> Symbols:
        """What a token stands for."""
        if self._vocabulary.is_text(token_id):
            return self._vocabulary.token_bytes[token_id] or b""
        return (256 + token_id,)

    def read_on(self, place: int, symbols: Symbols) -> tuple[int, int]:
        """How much of the end marker stands behind these symbols, or behind those that end it.

        And how many of them that are.
        """
        for index, symbol in enumerate(symbols):
            while place and self.end[place] != symbol:
                place = self._borders[place - 1]
            place += self.end[place] == symbol
            if place == len(self.end):
                return place, index + 1
        return place, len(symbols)

    def row(self, place: int) -> Row:
        """What may stand in reasoning: no stop and no padding, and nothing beyond the marker."""
        return self._rows[place]

    def start_row(self, place: int) -> Row:
        """The tokens that go on with the start marker, of which so many symbols stand."""
        return self._start_rows[place]

    def next_of_start(self, place: int) -> int:
        """The token to go on with, where the start marker is forced."""
        return self._next_of_start[place]

    def next_of_end(self, place: int) -> int:
        """The token to go on with, where the end marker is forced."""
        return self._next_of_end[place]

    def num_to_start(self, place: int = 0) -> int:
        """How many tokens are forced before the start marker is whole."""
        return self._count(self._next_of_start, len(self.start), place)

    def num_to_end(self, place: int = 0) -> int:
        """How many tokens are forced before the end marker is whole."""
        return self._count(self._next_of_end, len(self.end), place)

    @cached_property
    def max_to_end(self) -> int:
        """The most that `num_to_end` gives for any place."""
        return max(self.num_to_end(place) for place in range(len(self.end)))

    @cached_property
    def max_to_start(self) -> int:
        """The most that `num_to_start` gives for any place."""
        return max((self.num_to_start(place) for place in range(len(self.start))), default=0)

    def num_bytes_of_end(self, place: int) -> int:
        """How many bytes of text the first symbols of the end marker are."""
        return sum(symbol < 256 for symbol in self.end[:place])

    def _reason_on(self, place: int, token_id: int) -> State | None:
        is_text = self._vocabulary.is_text(token_id)
        if token_id in self._stops or not (is_text or token_id in self._named):
            return None
        symbols = self.symbols_of(token_id)
        if not place and is_text and (self.end[0] >= 256 or self.end[0] not in symbols):
            return self._reasoning[0]
        return self._state_behind(place, symbols)

    def _state_behind(self, place: int, symbols: Symbols) -> State | None:
        place, num_read = self.read_on(place, symbols)
        if place < len(self.end):
            return self._reasoning[place]
        return self.after_end if num_read == len(symbols) else None

    def _spell_from_all(self, marker: Symbols, text: str) -> dict[int, int]:
        """The token to write next at every place of a marker.

        From its beginning these spell it as the tokenizer does; from other places, its rest.
        """
        found: dict[int, int] = {}
        for place in range(len(marker)):
            position = place
            for token_id in self._spell(marker[place:]) if place not in found else ():
                if position in found:
                    break
                found[position] = token_id
                position += len(self.symbols_of(token_id))
        if len(found) < len(marker) or not self._stops.isdisjoint(found.values()):
            raise InvalidRequest(
                f"reasoning: no tokens of this model spell the marker {text!r}, or only such as end"
                " its output"
            )
        return found

    def _spell(self, symbols: Symbols) -> list[int]:
        """Tokens for these symbols; none where there are none."""
        if symbols[0] >= 256:
            rest = symbols[1:]
            return [symbols[0] - 256, *(self._spell(rest) if rest else ())]
        num_bytes = next((i for i, one in enumerate(symbols) if one >= 256), len(symbols))
        data, rest = bytes(symbols[:num_bytes]), symbols[num_bytes:]
        spelled = self._spell_text(data)
        if not spelled or not rest:
            return spelled
        behind = self._spell(rest)
        return [*spelled, *behind] if behind else []

    def _spell_text(self, data: bytes) -> list[int]:
        if data in self._ids:
            return [self._ids[data]]
        try:
            spelled = self._vocabulary.encode_text(data.decode())
            if self._vocabulary.decode_bytes(spelled) == data:
                return spelled
        except ValueError:  # half a character, or no token for a part
            pass
        for length in range(len(data) - 1, 0, -1):
            if data[:length] in self._ids and (behind := self._spell_text(data[length:])):
                return [self._ids[data[:length]], *behind]
        return []

    def _count(self, next_of: dict[int, int], size: int, place: int) -> int:
        count = 0
        while place < size:
            place += len(self.symbols_of(next_of[place]))
            count += 1
        return count

    def _free_row(self) -> Row:
        tokens = range(self._vocabulary.vocab_size)
        is_text = self._vocabulary.is_text
        return self._row_of(t for t in tokens if is_text(t) or t in self._named) & ~self._row_of(
            self._stops
        )

    def _find_overrunning(self) -> list[int]:
        """Tokens that end the marker at some place and go on behind it."""
        tail = bytes(self.end[_after_last_special(self.end) :])
        if not tail:
            return []
        ends = tuple(tail[k:] for k in range(len(tail)))
        whole = tail if len(tail) == len(self.end) else None
        return [
            token_id
            for token_id, data in enumerate(self._vocabulary.token_bytes)
            if data and (data.startswith(ends) or (whole is not None and whole in data))
        ]

    def _row_at(self, place: int) -> Row:
        symbols_of = self.symbols_of
        beyond = (t for t in self._overrunning if self._state_behind(place, symbols_of(t)) is None)
        return self._free & ~self._row_of(beyond)

    def _start_row_at(self, place: int) -> Row:
        rest = self.start[place:]
        if rest[0] >= 256:
            return self._row_of([rest[0] - 256])
        num_bytes = next((i for i, one in enumerate(rest) if one >= 256), len(rest))
        text = bytes(rest[:num_bytes])
        tokens = enumerate(self._vocabulary.token_bytes)
        near = [
            t for t, data in tokens if data and (text.startswith(data) or data.startswith(text))
        ]
        state = State(BEFORE, place)
        return self._row_of(t for t in near if self.advance(state, t) not in (None, ANSWERED))

    def _row_of(self, token_ids: Iterable[int]) -> Row:
        bits = np.zeros(32 * self._vocabulary.num_words, np.uint8)
        bits[[*token_ids]] = 1
        return np.packbits(bits, bitorder="little").view(np.int32)


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
        for symbol in ((256 + specials[part],) if index % 2 else part.encode())
    )


def find_borders(symbols: Symbols) -> list[int]:
    """For each beginning, how long the longest shorter one that it ends with is (Knuth 1977)."""
    borders = [0] * len(symbols)
    for index in range(1, len(symbols)):
        length = borders[index - 1]
        while length and symbols[index] != symbols[length]:
            length = borders[length - 1]
        borders[index] = length + (symbols[index] == symbols[length])
    return borders


def _after_last_special(symbols: Symbols) -> int:
    return next((i for i in range(len(symbols), 0, -1) if symbols[i - 1] >= 256), 0)
