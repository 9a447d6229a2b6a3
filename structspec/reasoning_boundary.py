"""Where reasoning ends and the answer begins, token by token.

BEFORE ── start marker ──▶ REASONING ── end marker ──▶ BREAK ── line breaks ──▶ ANSWER
   └───────────────── anything else ──────────────────────┴── anything else ──────▲

Markers are compared as text, so it does not matter which tokens spell them; a special token inside
one stands for itself alone. A token may begin before the end marker, and may not reach beyond it:
the answer's first byte begins a token. Where a family marks answers too, that stands before them,
with and without reasoning.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

from structspec.grammars.base import Row
from structspec.reasoning_symbols import (
    SPECIAL,
    Spelling,
    Symbols,
    find_borders,
    leading_text,
    row_of,
    symbols_of,
    to_symbols,
    trailing_text,
)
from structspec.vocabulary import Vocabulary

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

    def __init__(
        self, vocabulary: Vocabulary, start: str, end: str, line_breaks: int = 0, answer: str = ""
    ) -> None:
        """Raises InvalidRequest where the tokens cannot spell a marker."""
        self._vocabulary = vocabulary
        self._named = frozenset(vocabulary.special_tokens.values())
        self._stops = frozenset(vocabulary.stop_token_ids)
        self.start = to_symbols(start, vocabulary)
        self.end = to_symbols(end, vocabulary)
        self.answer = to_symbols(answer, vocabulary)
        assert self.end, "without an end marker nothing ends"
        self._borders = find_borders(self.end)
        self._reasoning = [State(REASONING, place) for place in range(len(self.end))]
        spelling = Spelling(vocabulary)
        self._next_of_start = spelling.next_of(self.start, start)
        self._next_of_end = spelling.next_of(self.end, end)
        self.answer_ids = self._chain(spelling.next_of(self.answer, answer), len(self.answer))
        self.line_breaks = line_breaks
        breaks = (b"\n" * n for n in range(1, line_breaks + 1))
        self.break_ids = frozenset(token_id for text in breaks for token_id in spelling.all(text))
        self.break_row = row_of(self.break_ids, vocabulary)
        self.after_end = State(BREAK) if self.break_ids else ENDED
        self._rows = self._make_rows(spelling)
        self._start_rows = [self._start_row_at(n, spelling) for n in range(len(self.start))]

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
        return symbols_of(token_id, self._vocabulary)

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
        return len(self._chain(self._next_of_start, len(self.start), place))

    def num_to_end(self, place: int = 0) -> int:
        """How many tokens are forced before the end marker is whole."""
        return len(self._chain(self._next_of_end, len(self.end), place))

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
        return sum(symbol < SPECIAL for symbol in self.end[:place])

    def _reason_on(self, place: int, token_id: int) -> State | None:
        is_text = self._vocabulary.is_text(token_id)
        if token_id in self._stops or not (is_text or token_id in self._named):
            return None
        symbols = self.symbols_of(token_id)
        if not place and is_text and (self.end[0] >= SPECIAL or self.end[0] not in symbols):
            return self._reasoning[0]
        return self._state_behind(place, symbols)

    def _state_behind(self, place: int, symbols: Symbols) -> State | None:
        place, num_read = self.read_on(place, symbols)
        if place < len(self.end):
            return self._reasoning[place]
        return self.after_end if num_read == len(symbols) else None

    def _chain(self, next_of: dict[int, int], size: int, place: int = 0) -> list[int]:
        """The tokens that lead from a place to the end of a marker."""
        token_ids: list[int] = []
        while place < size:
            token_ids.append(next_of[place])
            place += len(self.symbols_of(token_ids[-1]))
        return token_ids

    def _make_rows(self, spelling: Spelling) -> list[Row]:
        text = enumerate(self._vocabulary.token_bytes)
        allowed = {*(t for t, data in text if data), *self._named} - self._stops
        free = row_of(allowed, self._vocabulary)
        # only these may end the marker and go on behind it
        tail = trailing_text(self.end)
        long = {t for n in range(len(tail)) for t in spelling.along(tail[n:])}
        if len(tail) == len(self.end):
            long.update(spelling.around(tail))
        return [free & ~self._beyond(place, long) for place in range(len(self.end))]

    def _beyond(self, place: int, token_ids: set[int]) -> Row:
        """Those of the tokens that reach beyond the end marker from this place on."""
        behind = ((t, self._state_behind(place, self.symbols_of(t))) for t in token_ids)
        return row_of((t for t, state in behind if state is None), self._vocabulary)

    def _start_row_at(self, place: int, spelling: Spelling) -> Row:
        rest, state = self.start[place:], State(BEFORE, place)
        near = [rest[0] - SPECIAL] if rest[0] >= SPECIAL else spelling.along(leading_text(rest))
        fits = (t for t in near if self.advance(state, t) not in (None, ANSWERED))
        return row_of(fits, self._vocabulary)
