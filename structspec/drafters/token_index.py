"""Where the last tokens of each request occurred before, found without a look at its whole text.

    tokens     a  b  c  a  b  d  a  b           occurrences of the pair `a b`, the latest first:
    earlier    .  .  .  .  1  .  .  4           7 -> 4 -> 1; each may be the end of a longer match

Each request has a row. Tokens that are only drafted stand behind the known ones and are not linked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from structspec.drafters.request_rows import RequestRows
from structspec.kernels.compiled import compiled_in_order
from structspec.request import Request

TokenArray = NDArray[np.int32]

_NONE = -1
_ONE, _PAIR = range(2)  # what is linked: a token by itself, and with the one before it
_NUM_KNOWN, _NUM_BITS, _STATE_SIZE = range(3)  # of a row; its heads are 2 ** NUM_BITS
_FEWEST_BITS = 6
_FIRST_MIX, _SECOND_MIX = 0x9E3779B1, 0x85EBCA6B  # odd, and of no pattern

# an ask, and its answer: where the match goes on (0: nowhere), how many tokens are copied,
# and how many match
_ROW, _FIRST, _NUM_NEW, _NUM_DRAFT, _MIN, _MAX, _LIMIT = range(7)
_START, _COUNT, _LENGTH, _ASK_SIZE = range(7, 11)

_MIN_WIDTH = 256


class Ask(NamedTuple):
    """How one request goes on behind its known tokens, of which some are new, and a draft.

    At most `limit` tokens that followed a match of `min_match` to `max_match` tokens.
    """

    request: Request
    new: Sequence[int]
    draft: Sequence[int]
    limit: int
    min_match: int
    max_match: int


class TokenIndex:
    """Finds the longest earlier match of the last tokens, for many requests in one call.

    Of equally long matches the last counts. A new token takes constant time, a search that of the
    places where the last two tokens stood: so little that other threads would only be waited for.
    A text of n tokens takes 20n to 40n bytes until its request is finished.
    """

    def __init__(self) -> None:
        self._rows = RequestRows()
        self._tokens: TokenArray = np.empty((0, _MIN_WIDTH), np.int32)
        self._earlier: TokenArray = np.empty((0, 2, _MIN_WIDTH), np.int32)
        self._heads: TokenArray = np.empty((0, 2, _MIN_WIDTH), np.int32)
        self._states: NDArray[np.int64] = np.zeros((0, _STATE_SIZE), np.int64)
        # compiles, so that no request waits for it; taken from disk from the second time on
        self._run(np.empty((0, _ASK_SIZE), np.int64), np.empty(0, np.int32), 0)

    @property
    def num_requests(self) -> int:
        """How many have a row."""
        return len(self._rows)

    def forget_finished(self) -> None:
        """Free the rows of finished requests; to be called in every step."""
        self._rows.forget_finished()

    def num_known(self, request: Request) -> int:
        """How many of its tokens are known."""
        return self._rows.num_known(request)

    def draft(self, asks: Sequence[Ask]) -> list[list[int]]:
        """What followed each match."""
        return [token_ids for _, token_ids in self.matches(asks)]

    def matches(self, asks: Sequence[Ask]) -> list[tuple[int, list[int]]]:
        """How long each match is, 0 where there is none, and what followed it."""
        if not asks:
            return []
        answers, copied = self._answer(asks)
        places = answers[:, (_LENGTH, _COUNT)].tolist()
        rows = zip(copied.tolist(), places, strict=True)
        return [(length, row[:count]) for row, (length, count) in rows]

    def find(self, ask: Ask) -> tuple[int, TokenArray]:
        """Where the match goes on, or 0, and the tokens: known ones and draft.

        They are a view that the next call changes.
        """
        answers, _ = self._answer([ask])
        length = self.num_known(ask.request) + len(ask.draft)
        return int(answers[0, _START]), self._tokens[answers[0, _ROW], :length]

    def _answer(self, asks: Sequence[Ask]) -> tuple[NDArray[np.int64], TokenArray]:
        token_ids: list[int] = []
        rows = []
        width = 0
        for request, new, draft, limit, min_match, max_match in asks:
            row = self._rows.of(request)
            if row.num_known == 0 and row.index < len(self._states):
                self._states[row.index] = 0  # another request's were there
            row.num_known += len(new)
            width = max(width, row.num_known + len(draft))
            place = row.index, len(token_ids), len(new), len(draft)
            rows.append((*place, min_match, max_match, limit, 0, 0, 0))
            token_ids += new
            token_ids += draft
        self._make_room(width)
        answers = np.array(rows, np.int64)
        limit = max(ask.limit for ask in asks)
        return answers, self._run(answers, np.array(token_ids, np.int32), max(limit, 0))

    def _run(self, asks: NDArray[np.int64], token_ids: TokenArray, limit: int) -> TokenArray:
        """Fill in the answers; what is copied has `limit` columns."""
        copied: TokenArray = np.empty((len(asks), limit), np.int32)
        arrays = self._tokens, self._earlier, self._heads, self._states
        _answer_all(*arrays, asks, token_ids, copied)
        return copied

    def _make_room(self, width: int) -> None:
        """Rows for all requests, each for so many tokens; what they hold is kept."""
        num_rows, old_width = self._tokens.shape
        num_used = self._rows.num_used
        if num_used <= num_rows and width <= old_width:
            return
        while old_width < width:
            old_width *= 2
        shape = max(num_rows, 2 * num_used if num_used > num_rows else 0), old_width
        tokens, states = np.empty(shape, np.int32), np.zeros((shape[0], _STATE_SIZE), np.int64)
        earlier, heads = (np.empty((shape[0], 2, shape[1]), np.int32) for _ in range(2))
        for index in range(num_rows):
            num_known, num_bits = self._states[index]
            tokens[index, :num_known] = self._tokens[index, :num_known]
            earlier[index, :, :num_known] = self._earlier[index, :, :num_known]
            heads[index, :, : 1 << num_bits] = self._heads[index, :, : 1 << num_bits]
        states[:num_rows] = self._states
        self._tokens, self._earlier, self._heads, self._states = tokens, earlier, heads, states


@compiled_in_order
def _slot(token: Any, before: Any, num_bits: Any) -> Any:
    """Of a token behind another; -1 stands for any."""
    mixed = np.int64(token) * _FIRST_MIX + (np.int64(before) + 1) * _SECOND_MIX
    return (mixed & 0xFFFFFFFF) >> (32 - num_bits)


@compiled_in_order
def _link(tokens: Any, earlier: Any, heads: Any, place: Any, num_bits: Any) -> None:
    slot = _slot(tokens[place], _NONE, num_bits)
    earlier[_ONE, place] = heads[_ONE, slot]
    heads[_ONE, slot] = place
    if place > 0:
        slot = _slot(tokens[place], tokens[place - 1], num_bits)
        earlier[_PAIR, place] = heads[_PAIR, slot]
        heads[_PAIR, slot] = place


@compiled_in_order
def _take_in(tokens: Any, earlier: Any, heads: Any, state: Any, new: Any) -> None:
    """Append known tokens, and link them; all are linked anew where there are too few heads."""
    num_known = state[_NUM_KNOWN]
    total = num_known + len(new)
    tokens[num_known:total] = new
    num_bits = state[_NUM_BITS]
    if num_bits == 0 or total > 2 << num_bits:
        num_bits = max(num_bits, _FEWEST_BITS)
        while total > 1 << num_bits:
            num_bits += 1
        heads[:, : 1 << num_bits] = _NONE
        num_known = 0
    for place in range(num_known, total):
        _link(tokens, earlier, heads, place, num_bits)
    state[_NUM_KNOWN], state[_NUM_BITS] = total, num_bits


@compiled_in_order
def _num_matched(tokens: Any, end: Any, place: Any, max_match: Any) -> Any:
    """How many tokens before `place` are those before `end`."""
    length = 0
    while (
        length < max_match
        and length < place
        and tokens[place - 1 - length] == tokens[end - 1 - length]
    ):
        length += 1
    return length


@compiled_in_order
def _latest(tokens: Any, earlier: Any, heads: Any, state: Any, end: Any, what: Any) -> Any:
    """The last known token before the last one that is linked like it, or -1."""
    if end == state[_NUM_KNOWN]:
        return np.int64(earlier[what, end - 1])
    before = tokens[end - 2] if what == _PAIR else np.int32(_NONE)
    return np.int64(heads[what, _slot(tokens[end - 1], before, state[_NUM_BITS])])


@compiled_in_order
def _find(
    tokens: Any, earlier: Any, heads: Any, state: Any, end: Any, min_match: Any, max_match: Any
) -> Any:
    """Where the longest earlier match of the tokens before `end` goes on, and its length; or 0."""
    num_known = state[_NUM_KNOWN]
    best, best_length = 0, min_match - 1
    if max_match < min_match or end < 2 or num_known == 0:
        return 0, 0
    for place in range(end - 1, num_known, -1):  # matches that end in the draft
        length = _num_matched(tokens, end, place, max_match)
        if length > best_length:
            best, best_length = place, length
    if max_match > 1:
        last = _latest(tokens, earlier, heads, state, end, _PAIR)
        while last != _NONE and best_length < max_match:
            length = _num_matched(tokens, end, last + 1, max_match)
            if length > max(best_length, 1):  # 1: another pair with the same slot
                best, best_length = last + 1, length
            last = np.int64(earlier[_PAIR, last])
    if best_length == 0:
        last = _latest(tokens, earlier, heads, state, end, _ONE)
        while last != _NONE and tokens[last] != tokens[end - 1]:
            last = np.int64(earlier[_ONE, last])
        best, best_length = last + 1, 1
    return best, best_length if best > 0 else 0


@compiled_in_order
def _answer_all(
    tokens: Any,
    earlier: Any,
    heads: Any,
    states: Any,
    asks: Any,
    new: Any,
    copied: Any,
) -> None:
    """Take in what is new, search, and copy what followed."""
    for index in range(len(asks)):
        ask = asks[index]
        row, start = ask[_ROW], ask[_FIRST]
        own = tokens[row]
        middle = start + ask[_NUM_NEW]
        _take_in(own, earlier[row], heads[row], states[row], new[start:middle])
        num_known = states[row, _NUM_KNOWN]
        end = num_known + ask[_NUM_DRAFT]
        own[num_known:end] = new[middle : middle + ask[_NUM_DRAFT]]
        found, length = _find(own, earlier[row], heads[row], states[row], end, ask[_MIN], ask[_MAX])
        count = max(0, min(ask[_LIMIT], end - found)) if found > 0 else 0
        copied[index, :count] = own[found : found + count]
        ask[_START], ask[_COUNT], ask[_LENGTH] = found, count, length
