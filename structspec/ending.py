"""Texts that end within `max_tokens`: a matcher that is put around a request's near its end.

ending      tokens that would end the text here: one way, found by `EndingSearch`
left        tokens that the request may still write
allowed     what the matcher inside allows and leaves an ending within left - 1, its stop token too

Before `first` tokens are written, and as long as more is left than the ending and what a token may
add to it, all is the matcher's inside. Where the end is looked at next hangs on what is left; as
it gets near the ending is followed, kept, or looked for again with each token. So rows hang on the
text alone, however steps are taken.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from structspec.constraint import Constraint, JsonSchema
from structspec.ending_branches import hangs_on_values
from structspec.ending_matcher import TimelyMatcher
from structspec.ending_room import room_of
from structspec.ending_search import Ending, EndingSearch
from structspec.ending_tokens import EndingTokens
from structspec.grammars.base import Matcher, Row
from structspec.vocabulary import Vocabulary

_FAR_TOO_LONG = 4  # times max_tokens and some more: estimates are not that wrong
_FEW = 8
_MOST_PLANS = 512  # constraints with their limits that are remembered


class Endings:
    """Plans how the requests of one vocabulary come to their ends; thread-safe."""

    def __init__(self, vocabulary: Vocabulary, max_drafts: int) -> None:
        """`max_drafts` is how many tokens a step may draft."""
        self._tokens = EndingTokens(vocabulary)
        # where tokens are as short as bytes a text wants more of them
        self._scale = 1 if self._tokens.mean_length > 2 else 3
        self._plans: dict[tuple[object, ...], EndInTime | None] = {}
        self._max_in_flight = 2 * (max_drafts + 1)  # one step is planned while another runs

    def plan(self, constraint: Constraint | None, max_tokens: int) -> EndInTime | None:
        """What ends a request's text in time; None for free text, and where nothing could."""
        if constraint is None:
            return None
        key = (*constraint.key, max_tokens)
        if key not in self._plans:
            if len(self._plans) > _MOST_PLANS:
                self._plans.clear()
            self._plans[key] = self._plan(constraint, max_tokens)
        return self._plans.get(key)

    def _plan(self, constraint: Constraint, max_tokens: int) -> EndInTime | None:
        room = room_of(constraint)
        if self._scale * room.least > _FAR_TOO_LONG * (max_tokens + _FEW):
            return None
        num_tokens = num_watched = self._scale * room.num_tokens
        if room.is_open:
            # it may be opened that fast
            num_watched = max(2 * num_watched, max_tokens - max_tokens // (2 + room.growth // 8))
        first = max(0, max_tokens - num_watched)
        return EndInTime(
            EndingSearch(self._tokens, room.hints, num_tokens),
            max_tokens,
            first,
            num_tokens,
            self._scale * room.growth,
            max(0, first - self._max_in_flight),
            isinstance(constraint, JsonSchema) and not hangs_on_values(json.loads(constraint.text)),
        )


@dataclass(frozen=True, slots=True)
class EndInTime:
    """Puts a matcher around that of a request, once `wrap_at` of `max_tokens` are written."""

    search: EndingSearch
    max_tokens: int
    first: int  # tokens that are written before endings are looked for
    room: int  # tokens that an ending may have
    growth: int  # by how much a token may lengthen one
    wrap_at: int
    # whether one string or number may stand for another, whatever the text goes on with
    are_alike: bool = False
    starts: list[Ending | None] = field(default_factory=list)  # the ending of an empty text, once

    @property
    def is_hopeless(self) -> bool:
        """Whether no text was found that is short enough."""
        return self.starts == [None]

    def around(self, matcher: Matcher) -> TimelyMatcher:
        """A matcher at the start of the text."""
        return TimelyMatcher(matcher, self, 0)

    def behind(self, matcher: Matcher, num_tokens: int) -> TimelyMatcher:
        """Around a matcher that has taken so many tokens."""
        return TimelyMatcher(matcher, self, num_tokens)

    def widen(self, row: Row | None) -> Row | None:
        """The same: nothing is added."""
        return row
