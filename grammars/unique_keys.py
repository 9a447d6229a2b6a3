"""Keys of free maps that may not come twice: what no context-free grammar can remember.

A scanner (`key_places.py`) follows the JSON text and keeps the keys of every open object;
`GuardedMatcher` takes from a row the tokens that would close a key which its object already has:

    {"a": 1, "b": 2, "a     in a key, `a` read so far: every token that starts with `"` goes, since
                            it would complete `a`; `b` + anything stays
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from structspec.grammars.base import Bitmask, Matcher
from structspec.grammars.key_places import IN_KEY, TO_QUOTE, Keys, Place, decoded, decoded_whole
from structspec.vocabulary import Vocabulary

_QUOTED = re.compile(rb'(?="((?:[^"\\]|\\.)*)")', re.DOTALL)
_TWO_KEYS = re.compile(rb'"\s*:.*,\s*".*"', re.DOTALL)


class TokenTable:
    """The tokens of a vocabulary by what they may do to a key."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.token_bytes = vocabulary.token_bytes
        quoted = [(i, data) for i, data in enumerate(self.token_bytes) if data and b'"' in data]
        # tokens that may close a key
        self.closing = [token_id for token_id, _ in quoted]
        # the same by what they hold of it, as it is meant; those that cut an escape stand apart
        self.ends: dict[bytes, list[int]] = {}
        self.cut: list[int] = []
        # tokens that hold a whole key, by key, as it is meant
        self.holding: dict[bytes, list[int]] = {}
        for token_id, data in quoted:
            before = _before_quote(data)
            end = decoded_whole(before)
            if end is None:
                self.cut.append(token_id)
            elif before != data:  # it closes what it is in: not all its quotes are escaped
                self.ends.setdefault(end, []).append(token_id)
            for match in _QUOTED.finditer(data):
                self.holding.setdefault(decoded(match[1]), []).append(token_id)
        # tokens, very few, that may hold one key twice
        self.doubling = [token_id for token_id, data in quoted if _TWO_KEYS.search(data)]


def _before_quote(data: bytes) -> bytes:
    """What stands before the first quote that no backslash escapes; all of it if there is none."""
    match = TO_QUOTE.match(data)
    assert match is not None
    return match[0]


_TABLES: WeakKeyDictionary[Vocabulary, TokenTable] = WeakKeyDictionary()


def token_table(vocabulary: Vocabulary) -> TokenTable:
    """The table of a vocabulary, made once."""
    if vocabulary not in _TABLES:
        _TABLES[vocabulary] = TokenTable(vocabulary)
    return _TABLES[vocabulary]


def suspects(keys: Keys, table: TokenTable) -> list[int]:
    """The tokens that hold a key which an open object has: to be followed byte by byte."""
    names = frozenset[bytes]().union(*filter(None, keys))
    held = {i for name in names & table.holding.keys() for i in table.holding[name]}
    return [*held.union(table.doubling)]


def repeating(
    row: NDArray[np.int32], place: Place, some: list[int], table: TokenTable
) -> list[int]:
    """Those of some tokens that a row allows and that repeat a key from this place on."""
    token_bytes = table.token_bytes
    return [i for i in _allowed(row, some) if place.after(token_bytes[i] or b"") is None]


def closing_again(row: NDArray[np.int32], place: Place, table: TokenTable) -> list[int]:
    """The tokens, allowed by a row, that would make of the open key one that the object has.

    They are found by what is left of the other key; where an escape is cut short, by trying.
    """
    rivals = place.rivals
    if not rivals:
        return []
    begun = None if place.is_escaped else decoded_whole(place.key)
    if begun is None:
        return repeating(row, place, table.closing, table)
    rests = (rival[len(begun) :] for rival in rivals if rival.startswith(begun))
    ends = [i for rest in rests for i in table.ends.get(rest, ())]
    return _allowed(row, ends) + repeating(row, place, table.cut, table)


def _allowed(row: NDArray[np.int32], token_ids: Sequence[int]) -> list[int]:
    """Those of the tokens that a row allows."""
    return [i for i in token_ids if row.item(i >> 5) >> (i & 31) & 1]


class GuardedMatcher:
    """A matcher of a JSON text in which no key comes twice.

    Where every token would repeat a key (a map of few possible keys, all of them used) the row
    stays as it was: the finished text is validated anyway, and the report says so.
    """

    __slots__ = ("_places", "_suspects", "_suspects_of", "_table", "inner")

    def __init__(self, inner: Matcher, vocabulary: Vocabulary) -> None:
        self.inner = inner
        self._table = token_table(vocabulary)
        self._places = [Place()]  # one for each accepted token, so that they can be undone
        self._suspects = suspects((), self._table)
        self._suspects_of: Keys = ()

    def fill(self, bitmask: Bitmask, row: int, budget: int | None = None) -> None:
        """Write the allowed next tokens into `bitmask[row]`."""
        self.inner.fill(bitmask, row, budget)
        self.take_repeats_here(bitmask, row)

    def accept(self, token_id: int) -> bool:
        """Advance by one token; False leaves the state unchanged."""
        data = self.text_of(token_id)
        place = self._places[-1].after(data)
        if place is None and not self._is_trapped():
            return False
        if not self.inner.accept(token_id):
            return False
        self._places.append(place or self._repeating(data))
        return True

    def note_taken(self, token_ids: Sequence[int]) -> None:
        """The matcher inside has been moved by tokens that rows allowed."""
        for data in map(self.text_of, token_ids):
            self._places.append(self._places[-1].after(data) or self._repeating(data))

    def _repeating(self, data: bytes) -> Place:
        place = self._places[-1].after(data, may_repeat=True)
        assert place is not None
        return place

    def rollback(self, num_tokens: int) -> None:
        """Undo the last `num_tokens` accepted tokens."""
        self.inner.rollback(num_tokens)
        if num_tokens:
            del self._places[-num_tokens:]

    def forced(self, limit: int) -> bytes:
        """The text every valid continuation starts with."""
        return self.inner.forced(limit)

    def forced_tokens(self, limit: int) -> list[int]:
        """What the matcher inside leaves no choice about; of it there may be repeats."""
        return self.inner.forced_tokens(limit)

    def tokens_to_end(self) -> int | None:
        """As the matcher inside."""
        return self.inner.tokens_to_end()

    def places_of(self, draft_token_ids: Sequence[int]) -> list[Place] | None:
        """Where the row of each draft stands, and the last; None where a draft repeats a key."""
        places = [self._places[-1]]
        for token_id in draft_token_ids:
            place = places[-1].after(self.text_of(token_id))
            if place is None:
                return None
            places.append(place)
        return places

    def take_repeats_here(self, bitmask: Bitmask, row: int) -> None:
        """Take repeats from a row that the matcher inside filled where the text stands."""
        self._take_repeats(bitmask[row], self._places[-1])

    def take_repeats(self, bitmask: Bitmask, first_row: int, places: Sequence[Place]) -> None:
        """Take repeats from rows that the matcher inside filled at these places."""
        for row, place in enumerate(places, first_row):
            self._take_repeats(bitmask[row], place)

    @property
    def place(self) -> Place:
        """Where the text stands among keys."""
        return self._places[-1]

    def text_of(self, token_id: int) -> bytes:
        """The bytes of a token; a special one has none."""
        is_token = 0 <= token_id < len(self._table.token_bytes)
        return (self._table.token_bytes[token_id] if is_token else None) or b""

    def _take_repeats(self, row: NDArray[np.int32], place: Place) -> bool:
        """Whether the row had to stay as it was."""
        if place.keys is not self._suspects_of:
            self._suspects, self._suspects_of = suspects(place.keys, self._table), place.keys
        repeated = repeating(row, place, self._suspects, self._table) if self._suspects else []
        if place.mode == IN_KEY:
            repeated += closing_again(row, place, self._table)
        if not repeated:
            return False
        before = row.copy()
        words = row.view(np.uint32)
        for token_id in repeated:
            words[token_id // 32] &= ~np.uint32(1 << (token_id % 32))
        if row.any():
            return False
        row[:] = before
        return True

    def _is_trapped(self) -> bool:
        bitmask = np.zeros((1, (len(self._table.token_bytes) + 31) // 32), np.int32)
        self.inner.fill(bitmask, 0)
        return self._take_repeats(bitmask[0], self._places[-1])
