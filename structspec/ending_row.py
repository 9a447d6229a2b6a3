"""Which of the tokens that a grammar allows leave the text an ending in time.

Tokens that leave a JSON string open are alike, and one is looked at for all. Others are told apart
by their shape: of a few each is looked at, of many three, which speak for the rest if they agree.
What would take too long to look at is not allowed: the ending itself always is.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from structspec.ending_search import Ending, EndingSearch, Place
from structspec.grammars.base import Matcher

_ROOM_OF_CHARACTER = 4  # tokens that half a character wants, at most
_ROOM_OF_ESCAPE = 8  # `\\u` and its like
_FEW = 6  # tokens of one shape that are all looked at
_MANY = 32  # of those of one shape that differ
_MOST_SEARCHES = 12  # for one row


def narrowed(
    search: EndingSearch,
    matcher: Matcher,
    place: Place,
    inside: NDArray[np.bool_],
    num_left: int,
    room: int,
) -> NDArray[np.bool_]:
    """[vocab_size] of `inside`, what the matcher allows, at a place whose ending is one that fits.

    A token lengthens it by `room` at most. More `closers` of the place are found on the way.
    """
    return _Narrowing(search, matcher, place, num_left, room).of(inside)


class _Narrowing:
    def __init__(
        self,
        search: EndingSearch,
        matcher: Matcher,
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

    def of(self, inside: NDArray[np.bool_]) -> NDArray[np.bool_]:
        tokens = self._search.tokens
        fitting = np.zeros_like(inside)
        sure = [*tokens.vocabulary.stop_token_ids, *self._ending[:1]]
        fitting[sure] = inside[sure]
        rest = inside & ~fitting
        if self._is_free:
            for alike, room in (
                (tokens.plain, 0),
                (tokens.partial, _ROOM_OF_CHARACTER),
                (tokens.escaping, _ROOM_OF_ESCAPE),
            ):
                some = rest & alike
                if len(self._ending) + room <= self._most and self._first_fits(some):
                    fitting |= some
                rest &= ~alike
            self._longest += _ROOM_OF_ESCAPE
        by_shape = sorted(np.flatnonzero(rest).tolist(), key=tokens.shape_of)
        for _, group in groupby(by_shape, key=tokens.shape_of):
            fitting[self._fitting(sorted(group))] = True
        if self._is_free and (fitting == inside).all():
            self._closers.most = self._longest
        return fitting

    def _first_fits(self, some: NDArray[np.bool_]) -> bool:
        return bool(some.any()) and self._fits(int(some.argmax()))

    def _fitting(self, alike: Sequence[int]) -> list[int]:
        """Those of some tokens of one shape."""
        if len(alike) > _FEW:
            few = {alike[0], alike[len(alike) // 2], alike[-1]}
            found = [*map(self._fits, few)]
            if all(found):
                return [*alike]
            if not any(found):
                return []
        return [*filter(self._fits, alike[:_MANY])]

    def _fits(self, token_id: int) -> bool:
        """Whether behind this token the text can end in time."""
        if not self._matcher.accept(token_id):
            return False
        try:
            ending = self._search.keep(self._matcher, self._ending, token_id)
            if ending is None:
                ending = self._behind(token_id)
            if ending is None or len(ending) > self._most:
                return False
            self._longest = max(self._longest, len(ending))
            return True
        finally:
            self._matcher.rollback(1)

    def _behind(self, token_id: int) -> Ending | None:
        """An ending behind a token that was just taken, and does not lead to the one there was."""
        if self._num_searches == _MOST_SEARCHES:
            return None
        self._num_searches += 1  # also where one is not needed: rows do not hang on what is known
        if token_id in self._closers.endings:
            return self._closers.endings[token_id]
        last = self._search.last_byte([token_id], self._last)
        found = self._search.find(self._matcher, len(self._ending) + self._room, last)
        if self._is_free:
            self._closers.endings[token_id] = found
        return found
