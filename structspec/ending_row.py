"""Which of the tokens that a grammar allows leave the text an ending in time.

Tokens that leave a JSON string open are alike, and one is looked at for all. Others are told apart
by their shape: of a few each is looked at, of many three, which speak for the rest if they agree.
What would take too long to look at is not allowed: the ending itself always is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from structspec.ending_search import Ending, EndingSearch, Place
from structspec.ending_tokens import EndingTokens
from structspec.grammars.base import Row
from structspec.grammars.drafts import allowed_tokens
from structspec.grammars.scouts import Scout

_ROOM_OF_CHARACTER = 4  # tokens that half a character wants, at most
_ROOM_OF_ESCAPE = 8  # `\\u` and its like
_FEW = 6  # tokens of one shape that are all looked at
_MANY = 32  # of those of one shape that differ
_MOST_SEARCHES = 8  # for one row


def narrowed(
    search: EndingSearch,
    matcher: Scout,
    place: Place,
    inside: NDArray[np.bool_],
    num_left: int,
    room: int,
) -> NDArray[np.bool_]:
    """[vocab_size] of `inside`, what the matcher allows, at a place whose ending is one that fits.

    A token lengthens it by `room` at most. More `closers` of the place are found on the way.
    """
    return _Narrowing(search, matcher, place, num_left, room).of(inside)


def narrow_known(tokens: EndingTokens, place: Place, row: Row, num_left: int) -> bool:
    """Narrow a row in place by what is known of the string where the text stands.

    False, and nothing is changed, where that is not enough.
    """
    ending, closers, most = place.ending, place.closers, num_left - 2
    if not place.is_plain or ending is None or len(ending) > most:
        return False
    if not closers.stays.get("plain"):
        return False
    refused: list[int] = []
    for token_id in allowed_tokens((row & tokens.other_row)[np.newaxis], 0):
        if ending[:1] == (token_id,):
            continue
        if token_id not in closers.endings:
            return False
        behind = closers.endings[token_id]
        if behind is None or len(behind) > most:
            refused.append(token_id)
    away = []
    for kind, some, room in (
        ("partial", tokens.partial_row, _ROOM_OF_CHARACTER),
        ("escaping", tokens.escaping_row, _ROOM_OF_ESCAPE),
    ):
        if len(ending) + room > most:
            away.append(some)
        elif kind not in closers.stays and (row & some).any():
            return False
        elif not closers.stays.get(kind, True):
            away.append(some)
    for some in away:
        row &= ~some
    words = row.view(np.uint32)
    for token_id in refused:
        words[token_id // 32] &= ~np.uint32(1 << token_id % 32)
    return True


def is_known_to_fit(tokens: EndingTokens, place: Place, token_id: int, num_left: int) -> bool:
    """Whether that is known of a token, if the matcher takes it; False where it has to be seen."""
    ending, closers, most = place.ending, place.closers, num_left - 2
    if ending is None or len(ending) > most:
        return False
    if ending[:1] == (token_id,):
        return True
    is_plain = 0 <= token_id < tokens.vocab_size and bool(tokens.plain[token_id])
    return place.is_plain and is_plain and closers.stays.get("plain", False)


class _Narrowing:
    def __init__(
        self,
        search: EndingSearch,
        matcher: Scout,
        place: Place,
        num_left: int,
        room: int,
    ) -> None:
        self._search = search
        self._matcher = matcher
        assert place.ending is not None
        self._ending = place.ending
        self._most = num_left - 2  # tokens of an ending behind the next token, and its stop token
        self._room = room
        self._closers = place.closers
        self._longest = len(place.ending)
        self._last = place.last
        self._is_free = search.is_free(matcher)
        self._num_searches = 0
        self._is_key = self._is_free and search.closes_a_key(self._ending)

    def of(self, inside: NDArray[np.bool_]) -> NDArray[np.bool_]:
        tokens = self._search.tokens
        if np.count_nonzero(inside) == 1:
            return inside
        fitting = np.zeros_like(inside)
        sure = [*tokens.vocabulary.stop_token_ids, *self._ending[:1]]
        fitting[sure] = inside[sure]
        rest = inside & ~fitting
        if self._is_free:
            for kind, alike, room in (
                ("plain", tokens.plain, int(self._is_key)),
                ("partial", tokens.partial, _ROOM_OF_CHARACTER),
                ("escaping", tokens.escaping, _ROOM_OF_ESCAPE),
            ):
                some = rest & alike
                if len(self._ending) + room <= self._most and self._first_stays(kind, some):
                    fitting |= some
                rest &= ~alike
            self._longest += _ROOM_OF_ESCAPE
        for group in tokens.by_shape(np.flatnonzero(rest)):
            fitting[self._fitting(group)] = True
        may_close = self._is_free and self._search.closes_a_string(self._ending)
        if may_close and (fitting == inside).all():
            self._closers.most = self._longest
        return fitting

    def _first_stays(self, kind: str, some: NDArray[np.bool_]) -> bool:
        """Whether the text can end behind tokens of a kind that leave the string open."""
        if not some.any():
            return False
        stays = self._closers.stays
        if kind not in stays:
            few = [int(some.argmax())]
            if not self._search.closes_a_string(self._ending):
                few.append(self._search.tokens.longest_shape(some))  # it may be too much
            stays[kind] = all(self._ending_behind(token_id) is not None for token_id in few)
        return stays[kind]

    def _fitting(self, alike: NDArray[np.int64]) -> list[int]:
        """Those of some tokens of one shape."""
        if len(alike) > _FEW:
            few = alike[[0, len(alike) // 2, -1]].tolist()
            found = [*map(self._fits, few)]
            if not any(found):
                return []
            if all(found) and self._may_follow(few):
                return [*map(int, alike)]
        return [*filter(self._fits, alike[:_MANY].tolist())]

    def _may_follow(self, few: Sequence[int]) -> bool:
        """Whether each of these may stand behind the one before: it is all the same which does.

        Of words that are listed, some of which may be long, none is.
        """
        for first, then in zip(few, [*few[1:], few[0]], strict=True):
            if not self._matcher.accept(first):
                return False
            may_stand = False
            try:
                may_stand = self._matcher.accept(then)
            finally:
                self._matcher.rollback(1 + may_stand)
            if not may_stand:
                return False
        return True

    def _fits(self, token_id: int) -> bool:
        """Whether behind this token the text can end in time."""
        known = self._closers.endings
        is_known = token_id in known
        ending = known[token_id] if is_known else self._ending_behind(token_id)
        if self._is_free:
            known[token_id] = ending
        if ending is None or len(ending) > self._most:
            return False
        self._longest = max(self._longest, len(ending))
        return True

    def _ending_behind(self, token_id: int) -> Ending | None:
        if not self._matcher.accept(token_id):
            return None
        try:
            ending = self._search.keep(self._matcher, self._ending, token_id)
            if ending is not None or self._num_searches == _MOST_SEARCHES:
                return ending
            self._num_searches += 1
            last = self._search.last_byte([token_id], self._last)
            limit = min(len(self._ending) + self._room, self._closers.limit)
            return self._search.find(self._matcher, limit, last, self._ending)
        finally:
            self._matcher.rollback(1)
