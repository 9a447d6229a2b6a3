"""Keys of free maps that may not come twice: what no context-free grammar can remember.

A scanner follows the JSON text byte by byte and keeps the keys of every open object;
`GuardedMatcher` takes from a row the tokens that would close a key which its object already has:

    {"a": 1, "b": 2, "a     in a key, `a` read so far: every token that starts with `"` goes, since
                            it would complete `a`; `b` + anything stays
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from structspec.grammars.base import Bitmask, FillJob, Matcher
from structspec.grammars.drafts import is_allowed
from structspec.vocabulary import Vocabulary

_QUOTE, _BACKSLASH = 0x22, 0x5C
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_ARRAY, _CLOSE_ARRAY = b"{}[]"
_COMMA = 0x2C
_OUTSIDE, _IN_KEY, _IN_STRING = range(3)
_MANY_SPELLINGS = re.compile(rb'[^ -~]|["\\/]')  # characters that may be escaped
_EVENTS = re.compile(rb'["{}[\],]'), re.compile(rb'["\\]')  # outside strings, and inside
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_TO_QUOTE = re.compile(rb'(?:[^"\\]|\\.)*', re.DOTALL)
_QUOTED = re.compile(rb'(?=("([^"]*)"))')
_HIGHEST = b"\xff" * 8


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a JSON text the scanner stands.

    `keys` holds one entry for each open bracket: the keys of an object, None for an array.
    """

    mode: int = _OUTSIDE
    keys: tuple[frozenset[bytes] | None, ...] = ()
    key: bytes = b""  # what was read of the open key, as written
    is_escaped: bool = False
    expects_key: bool = False

    def after(self, data: bytes, *, may_repeat: bool = False) -> Place | None:
        """The place behind these bytes; None where a key comes twice and may not."""
        if not self.is_escaped and _EVENTS[self.mode != _OUTSIDE].search(data) is None:
            return Place(_IN_KEY, self.keys, self.key + data) if self.mode == _IN_KEY else self
        place: Place | None = self
        for byte in data:
            assert place is not None
            place = place._step(byte, may_repeat)
            if place is None:
                return None
        return place

    def _step(self, byte: int, may_repeat: bool) -> Place | None:
        if self.mode == _OUTSIDE:
            return self._step_outside(byte)
        if self.is_escaped:
            return self._continued(byte, is_escaped=False)
        if byte == _BACKSLASH:
            return self._continued(byte, is_escaped=True)
        if byte != _QUOTE:
            return self._continued(byte, is_escaped=False)
        if self.mode == _IN_STRING:
            return Place(_OUTSIDE, self.keys)
        seen, key = self.keys[-1], decoded(self.key)
        assert seen is not None
        if key in seen and not may_repeat:
            return None
        return Place(_OUTSIDE, (*self.keys[:-1], seen | {key}))

    def _continued(self, byte: int, *, is_escaped: bool) -> Place:
        if self.mode == _IN_KEY:
            return Place(_IN_KEY, self.keys, self.key + bytes((byte,)), is_escaped)
        if is_escaped == self.is_escaped:
            return self
        return Place(_IN_STRING, self.keys, b"", is_escaped)

    def _step_outside(self, byte: int) -> Place:
        if byte == _QUOTE:
            return Place(_IN_KEY if self.expects_key else _IN_STRING, self.keys)
        if byte == _OPEN_OBJECT:
            return Place(_OUTSIDE, (*self.keys, frozenset()), expects_key=True)
        if byte == _OPEN_ARRAY:
            return Place(_OUTSIDE, (*self.keys, None))
        if byte in (_CLOSE_OBJECT, _CLOSE_ARRAY):
            return Place(_OUTSIDE, self.keys[:-1])
        if byte == _COMMA:
            is_object = bool(self.keys) and self.keys[-1] is not None
            return Place(_OUTSIDE, self.keys, expects_key=is_object)
        return self

    @property
    def rivals(self) -> frozenset[bytes]:
        """The keys that the open one may not become."""
        return (self.keys[-1] or frozenset()) if self.mode == _IN_KEY else frozenset()


def decoded(key: bytes) -> bytes:
    """A key as it is meant, whichever way its characters are escaped; as it is where it is none."""
    if b"\\" not in key:
        return key
    try:
        text: str = json.loads(b'"' + key + b'"')
        return text.encode()
    except ValueError:  # an escape or a character cut short, which no grammar takes
        return key


class TokenTable:
    """The tokens of a vocabulary by what they may do to a key."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        texts = [(data, i) for i, data in enumerate(vocabulary.token_bytes) if data is not None]
        texts.sort()
        self.token_bytes = vocabulary.token_bytes
        self._sorted = [data for data, _ in texts]
        self._ids = np.array([token_id for _, token_id in texts], np.int64)
        quoted = [(data, token_id) for data, token_id in texts if b'"' in data]
        # tokens that may close a key: their ids, and what of it they hold, by id
        self.closing = np.array([token_id for _, token_id in quoted], np.int64)
        self.ends = {token_id: _before_quote(data) for data, token_id in quoted}
        # tokens that hold a whole key, by key
        self.holding: dict[bytes, list[int]] = {}
        for data, token_id in quoted:
            for match in _QUOTED.finditer(data):
                self.holding.setdefault(match[2], []).append(token_id)
        # tokens, very few, that may hold a key in another spelling, or two keys
        self.intricate = tuple(token_id for data, token_id in quoted if _is_intricate(data))

    def starting_with(self, prefix: bytes) -> NDArray[np.int64]:  # [num_tokens]
        """Ids of the tokens that start so."""
        low = bisect_left(self._sorted, prefix)
        return self._ids[low : bisect_left(self._sorted, prefix + _HIGHEST, low)]


def _before_quote(data: bytes) -> bytes:
    """What stands before the first quote that no backslash escapes; all of it if there is none."""
    match = _TO_QUOTE.match(data)
    assert match is not None
    return match[0]


def _is_intricate(data: bytes) -> bool:
    if data.count(b'"') < 2:
        return False
    # of a token that begins behind a backslash, or not, the quotes that are none of the text
    num_quotes = max(_ESCAPE.sub(b"", start).count(b'"') for start in (data, data[1:]))
    return num_quotes >= (2 if b"\\" in data else 4)


_TABLES: WeakKeyDictionary[Vocabulary, TokenTable] = WeakKeyDictionary()


def token_table(vocabulary: Vocabulary) -> TokenTable:
    """The table of a vocabulary, made once."""
    if vocabulary not in _TABLES:
        _TABLES[vocabulary] = TokenTable(vocabulary)
    return _TABLES[vocabulary]


def repeats(row: NDArray[np.int32], place: Place, table: TokenTable) -> list[int]:
    """The tokens of a filled row that would repeat a key.

    Tokens are followed byte by byte only where they might: those that hold a key that an open
    object has, and, where a key or its rivals have escapes, those that may close it.
    """
    found: list[int] = []
    suspects = {token_id for token_id in table.intricate if _is_set(row, token_id)}
    for keys in place.keys:
        for key in keys or ():
            suspects.update(i for i in table.holding.get(key, ()) if _is_set(row, i))
    rivals = place.rivals
    if rivals and (b"\\" in place.key or any(map(_MANY_SPELLINGS.search, rivals))):
        for token_id in _allowed(row, table.closing):
            end = table.ends[token_id]
            if place.is_escaped or b"\\" in end:
                suspects.add(token_id)
            elif decoded(place.key + end) in rivals:
                found.append(token_id)
    else:
        for rival in rivals:
            if rival.startswith(place.key):
                found += _allowed(row, table.starting_with(rival[len(place.key) :] + b'"'))
    for token_id in suspects:
        data = table.token_bytes[token_id]
        if data is not None and place.after(data) is None:
            found.append(token_id)
    return found


def _is_set(row: NDArray[np.int32], token_id: int) -> bool:
    return bool((int(row[token_id >> 5]) >> (token_id & 31)) & 1)


def _allowed(row: NDArray[np.int32], ids: NDArray[np.int64]) -> list[int]:
    """Those of the tokens that a row allows."""
    kept: list[int] = ids[(row[ids >> 5] >> (ids & 31)) & 1 == 1].tolist()
    return kept


class GuardedMatcher:
    """A matcher of a JSON text in which no key comes twice.

    Where every token would repeat a key (a map of few possible keys, all of them used) the row
    stays as it was: the finished text is validated anyway, and the report says so.
    """

    __slots__ = ("_places", "_table", "inner")

    def __init__(self, inner: Matcher, vocabulary: Vocabulary) -> None:
        self.inner = inner
        self._table = token_table(vocabulary)
        self._places = [Place()]  # one for each accepted token, so that they can be undone

    def fill(self, bitmask: Bitmask, row: int, budget: int | None = None) -> None:
        """Write the allowed next tokens into `bitmask[row]`."""
        self.inner.fill(bitmask, row, budget)
        self._take_repeats(bitmask[row], self._places[-1])

    def accept(self, token_id: int) -> bool:
        """Advance by one token; False leaves the state unchanged."""
        data = self._table.token_bytes[token_id] if self._is_token(token_id) else None
        place = self._places[-1].after(data or b"")
        if place is None:
            if not self._is_trapped():
                return False
            place = self._places[-1].after(data or b"", may_repeat=True)
            assert place is not None
        if not self.inner.accept(token_id):
            return False
        self._places.append(place)
        return True

    def rollback(self, num_tokens: int) -> None:
        """Undo the last `num_tokens` accepted tokens."""
        self.inner.rollback(num_tokens)
        if num_tokens:
            del self._places[-num_tokens:]

    def forced(self, limit: int) -> bytes:
        """The text every valid continuation starts with."""
        return self.inner.forced(limit)

    def tokens_to_end(self) -> int | None:
        """As the matcher inside."""
        return self.inner.tokens_to_end()

    def repair(self, job: FillJob, num_valid: int, bitmask: Bitmask) -> int:
        """Take repeats from rows that the matcher inside filled; how many drafts are left."""
        place = self._places[-1]
        for index in range(num_valid + 1):
            row = job.first_row + index
            self._take_repeats(bitmask[row], place)
            if index == num_valid or not is_allowed(bitmask, row, job.draft_token_ids[index]):
                return index
            data = self._table.token_bytes[job.draft_token_ids[index]]
            following = place.after(data or b"", may_repeat=True)
            assert following is not None
            place = following
        raise AssertionError("the loop returns")

    def _is_token(self, token_id: int) -> bool:
        return 0 <= token_id < len(self._table.token_bytes)

    def _take_repeats(self, row: NDArray[np.int32], place: Place) -> bool:
        """Whether the row had to stay as it was."""
        repeated = repeats(row, place, self._table) if any(place.keys) else []
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
