"""JSON objects of any keys that are whole within `max_tokens`: a matcher around their grammar's.

left            tokens that the request may still write
needed(text)    the fewest tokens that end `text`, the stop token among them
allowed         what the matcher inside allows, where needed(text + token) ≤ left - 1

As long as much is left nothing is looked at. Of schemas that say more nobody here knows the
shortest text, so theirs are cut.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from structspec.bitmask import allocate_bitmask, pack_row, unpack_row
from structspec.constraint import Constraint, JsonSchema
from structspec.grammars.base import Bitmask, FillJob, Matcher, Row
from structspec.grammars.drafts import taken_ahead
from structspec.grammars.wrapping import WrappedMatcher, Wrapper
from structspec.json_annotations import without_annotations
from structspec.json_positions import Mode, Position
from structspec.vocabulary import Vocabulary

_ANY_OBJECT = (
    {"type": "object"},
    {"type": "object", "additionalProperties": True},
    {"type": "object", "additionalProperties": {}},
)
_MAX_SCHEMA = 200  # characters: what is longer says more
_MAX_LENGTH = 16  # bytes of a token that texts are ended with
# Tokens that end what is open beside brackets, at most: `\u` wants four, a key that others have
# already six, then come `": 0` and the stop token.
_MAX_LOCAL = 15


def close_in_time(
    constraint: Constraint | None, max_tokens: int, vocabulary: Vocabulary
) -> tuple[Wrapper, ...]:
    """What ends a request's object in time, where its constraint is any JSON object."""
    if not isinstance(constraint, JsonSchema) or constraint.style not in ("spaced", "compact"):
        return ()
    if len(constraint.text) > _MAX_SCHEMA:
        return ()
    if without_annotations(json.loads(constraint.text)) not in _ANY_OBJECT:
        return ()
    if vocabulary not in _TABLES:
        _TABLES[vocabulary] = ClosingTable(vocabulary)
    table = _TABLES[vocabulary]
    start = Position(has_blanks=constraint.style == "spaced")
    return (Closing(table, start, max_tokens),) if table.num_needed(start) <= max_tokens else ()


class ClosingTable:
    """The tokens of a vocabulary by what they may do to the end of a JSON text; thread-safe."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocab_size = vocabulary.vocab_size
        self._token_bytes = vocabulary.token_bytes
        self._stops = frozenset(vocabulary.stop_token_ids)
        texts = [data for data in vocabulary.token_bytes if data]
        self._ids: dict[bytes, list[int]] = {}
        for token_id, data in enumerate(vocabulary.token_bytes):
            self._ids.setdefault(data or b"", []).append(token_id)
        self.max_openings = max(map(_count_openings, texts), default=0)
        # those that leave a string as open as it was
        self._is_plain = np.array([_is_plain(data) for data in vocabulary.token_bytes], bool)
        self._count = lru_cache(maxsize=4096)(self._fewest)

    def num_needed(self, position: Position) -> float:
        """The fewest tokens to the end from there, a stop token among them; or infinity."""
        return self._count(position.closing()) + 1

    def after(self, position: Position | None, token_id: int) -> Position | None:
        """The position behind a token."""
        if position is None or not 0 <= token_id < self.vocab_size or token_id in self._stops:
            return position
        return position.after(self._token_bytes[token_id] or b"")

    def fits(self, after: Position | None, token_id: int, num_left: int) -> bool:
        """Whether of so many tokens enough are left behind this one, which leads there."""
        is_known = after is not None and self.num_needed(after) <= num_left - 1
        return is_known or token_id in self._stops

    def fitting(
        self,
        position: Position,
        allowed: NDArray[np.bool_],  # [vocab_size]
        num_left: int,
    ) -> NDArray[np.bool_]:
        """Those of the allowed tokens that fit; costs a look at each that may end a string."""
        fitting = np.zeros_like(allowed)
        tried = allowed
        if position.mode in (Mode.IN_KEY, Mode.IN_STRING) and not position.rest:
            # what is plain leaves such a string as it was, unless it makes a key that is there
            is_plain = allowed & self._is_plain
            tried = allowed & ~self._is_plain
            if self._count(position.closing_once_new()) + 1 <= num_left - 1:
                fitting |= is_plain
                for data in position.missing_to_rivals():
                    ids = self._ids.get(data, [])
                    tried[ids] = allowed[ids]
        for token_id in np.flatnonzero(tried).tolist():
            fitting[token_id] = self.fits(self.after(position, token_id), token_id, num_left)
        return fitting

    def _fewest(self, text: bytes) -> float:
        """How many tokens spell a text, at least."""
        fewest = [0.0] * (len(text) + 1)  # that spell it from here on
        for start in reversed(range(len(text))):
            ends = range(start + 1, min(start + _MAX_LENGTH, len(text)) + 1)
            rests = [fewest[end] for end in ends if text[start:end] in self._ids]
            fewest[start] = 1 + min(rests, default=inf)
        return fewest[0]


_TABLES: WeakKeyDictionary[Vocabulary, ClosingTable] = WeakKeyDictionary()


def _count_openings(data: bytes) -> int:
    return data.count(b"{") + data.count(b"[")


def _is_plain(data: bytes | None) -> bool:
    if not data or b'"' in data or b"\\" in data or min(data) < 0x20:
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Closing:
    """Puts matchers of one request's object, which has `max_tokens`, around its grammar's."""

    table: ClosingTable
    start: Position
    max_tokens: int

    def around(self, matcher: Matcher) -> ClosingMatcher:
        """A matcher at the start of the object."""
        return ClosingMatcher(matcher, self)

    def widen(self, row: Row | None) -> Row | None:
        """The same: nothing is added."""
        return row


class ClosingMatcher(WrappedMatcher):
    """What the matcher inside allows, as long as the object can still be whole in time.

    Where nothing would be left (which takes a grammar that allows other JSON than is known here)
    all stays as it was.
    """

    __slots__ = ("_max_tokens", "_positions", "_table")

    def __init__(self, inner: Matcher, closing: Closing) -> None:
        super().__init__(inner)
        self._table, self._max_tokens = closing.table, closing.max_tokens
        self._positions: list[Position | None] = [closing.start]  # and one behind each token

    def fill(self, bitmask: Bitmask, row: int, budget: int | None = None) -> None:
        """Write the allowed next tokens into `bitmask[row]`."""
        self.inner.fill(bitmask, row, budget)
        self._narrow(
            bitmask[row], self._num_left if budget is None else min(budget, self._num_left)
        )

    def accept(self, token_id: int) -> bool:
        """Advance by one token; False leaves the state unchanged."""
        position, num_left = self._positions[-1], self._num_left
        after = self._table.after(position, token_id)
        is_late = self._is_tight(num_left) and not self._table.fits(after, token_id, num_left)
        if (is_late and not self._is_lost()) or not self.inner.accept(token_id):
            return False
        self._positions.append(after)
        return True

    def rollback(self, num_tokens: int) -> None:
        """Undo the last `num_tokens` accepted tokens."""
        self.inner.rollback(num_tokens)
        if num_tokens:
            del self._positions[-num_tokens:]

    def forced_tokens(self, limit: int) -> list[int]:
        """What the matcher inside leaves no choice about."""
        return taken_ahead(self, self.inner.forced_tokens(limit))

    def tokens_to_end(self) -> int | None:
        """The fewest tokens to a valid end, a stop token among them."""
        position = self._positions[-1]
        num_needed = inf if position is None else self._table.num_needed(position)
        return None if num_needed == inf else int(num_needed)

    def inner_job(self, job: FillJob) -> FillJob | None:
        """The same for the matcher inside, while so much is left that no row is narrowed."""
        num_more = len(job.draft_token_ids)
        if self._is_tight(self._num_left - num_more * (1 + self._table.max_openings)):
            return None
        return FillJob(self.inner, job.first_row, job.draft_token_ids)

    @property
    def _num_left(self) -> int:
        return self._max_tokens - len(self._positions) + 1

    def _is_tight(self, num_left: int) -> bool:
        """Whether some token might leave too few for the end."""
        position = self._positions[-1]
        if position is None:
            return False
        return num_left - 1 < len(position.due) + _MAX_LOCAL + self._table.max_openings

    def _is_lost(self) -> bool:
        """Whether no token leaves enough."""
        bitmask = allocate_bitmask(1, self._table.vocab_size)
        self.inner.fill(bitmask, 0)
        return not self._narrow(bitmask[0], self._num_left)

    def _narrow(self, row: Row, num_left: int) -> bool:
        """Take from a row what leaves too few tokens for the end; False where that is all of it."""
        position = self._positions[-1]
        if position is None or not self._is_tight(num_left):
            return True
        allowed = unpack_row(row, self._table.vocab_size)
        fitting = self._table.fitting(position, allowed, num_left)
        if not fitting.any():
            return False
        pack_row(fitting, row)
        return True
