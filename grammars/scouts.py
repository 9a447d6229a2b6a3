"""Copies of matchers that are sent ahead: cheap to make, to move and to throw away.

A matcher keeps its follower, its place in a pool and what its library remembers of rows in step;
one that only looks what may come need not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from llguidance import LLMatcher
from llguidance.numpy import fill_next_token_bitmask

from structspec.grammars.base import Bitmask, Matcher, MatcherFailed
from structspec.grammars.key_places import Place
from structspec.grammars.llguidance_matcher import LLGuidanceMatcher
from structspec.grammars.unique_keys import GuardedMatcher


class Scout(Protocol):
    """What of a `Matcher` looking ahead takes; its laws hold."""

    def accept(self, token_id: int) -> bool:
        """Advance by one token; False leaves the state unchanged."""

    def rollback(self, num_tokens: int) -> None:
        """Undo the last `num_tokens` accepted tokens."""

    def forced_tokens(self, limit: int) -> list[int]:
        """The tokens that the masks leave no choice about from here on, at most `limit`."""

    def take_forced(self, limit: int) -> list[int]:
        """Advance by those, stop tokens left out, and say which they were."""

    def fill(self, bitmask: Bitmask, row: int) -> None:
        """Write the allowed next tokens into `bitmask[row]`."""

    def ends_with(self, token_ids: Sequence[int]) -> bool:
        """Whether these tokens end the text here, a stop token behind them."""


def scout_of(matcher: Matcher, stop_token_ids: Sequence[int]) -> Scout:
    """A scout where the text stands: on a copy, or on the matcher itself where there is none.

    Whoever moves it moves it back.
    """
    inner = _inner_of(matcher)
    if inner is None:
        return _MatcherScout(matcher, stop_token_ids)
    scout = _LLGuidanceScout(inner)
    return _GuardedScout(scout, matcher) if isinstance(matcher, GuardedMatcher) else scout


def _inner_of(matcher: Matcher) -> LLGuidanceMatcher | None:
    """The one that llguidance is asked by, if that is what the matcher hangs on."""
    inner = matcher.inner if isinstance(matcher, GuardedMatcher) else matcher
    return inner if isinstance(inner, LLGuidanceMatcher) else None


def reads_bytes(matcher: Matcher) -> bool:
    """Whether it hangs on a text's bytes alone what the text may go on with, and may end with."""
    return _inner_of(matcher) is not None


def may_stand(matcher: Matcher, token_ids: Sequence[int]) -> bool:
    """Whether some tokens of text may come next, where that is quickly said; else they may too.

    The first of them is how it is spelled, where text is forced.
    """
    inner = _inner_of(matcher)
    if inner is None or inner.is_stopped:
        return False
    if inner.library.validate_tokens([*token_ids]) < len(token_ids):
        return False
    return not token_ids or inner.is_shown(token_ids[0])


def last_tokens(matcher: Matcher, num_tokens: int) -> Sequence[int] | None:
    """The last so many that it has taken, none of which stops; None where nobody knows them."""
    inner = _inner_of(matcher)
    if inner is None or inner.is_stopped:
        return None
    first = len(inner.token_ids) - num_tokens
    return inner.token_ids[first:] if first >= 0 else None


class _MatcherScout:
    """The matcher itself."""

    __slots__ = ("_matcher", "_stops")

    def __init__(self, matcher: Matcher, stop_token_ids: Sequence[int]) -> None:
        self._matcher = matcher
        self._stops = stop_token_ids

    def accept(self, token_id: int) -> bool:
        return self._matcher.accept(token_id)

    def rollback(self, num_tokens: int) -> None:
        self._matcher.rollback(num_tokens)

    def forced_tokens(self, limit: int) -> list[int]:
        return self._matcher.forced_tokens(limit)

    def take_forced(self, limit: int) -> list[int]:
        return _take_forced(self, limit, self._stops)

    def fill(self, bitmask: Bitmask, row: int) -> None:
        self._matcher.fill(bitmask, row)

    def ends_with(self, token_ids: Sequence[int]) -> bool:
        num_taken = 0
        try:
            for token_id in token_ids:
                if not self._matcher.accept(token_id):
                    return False
                num_taken += 1
            is_over = any(map(self._matcher.accept, self._stops))
            num_taken += is_over
            return is_over
        finally:
            self._matcher.rollback(num_taken)


class _LLGuidanceScout:
    """On a copy of the library's matcher."""

    __slots__ = (
        "_before",
        "_library",
        "_num_stops",
        "_original",
        "_start",
        "_stops",
        "_token_ids",
        "_writable",
    )

    def __init__(self, matcher: LLGuidanceMatcher) -> None:
        self._library = matcher.library.deep_copy()
        self._original = matcher.original
        self._writable = matcher.is_writable
        self._stops = matcher.vocabulary.stop_token_ids
        self._num_stops = matcher.num_stops
        self._before = [*matcher.token_ids]
        self._start: LLMatcher | None = None  # behind those before, once it is needed
        self._token_ids: list[int] = []  # behind those

    def accept(self, token_id: int) -> bool:
        if token_id in self._stops:
            is_allowed = self._num_stops > 0 or bool(self._library.is_accepting())
            self._num_stops += is_allowed
            return is_allowed
        if self._num_stops or not self._writable(token_id):
            return False
        if self._library.compute_ff_bytes():
            forced = self._library.compute_ff_tokens()
            if forced and forced[0] != token_id:  # where text is forced, the canonical token is
                return False
        if self._library.try_consume_tokens([token_id]) == 0:
            if self._library.is_error():
                raise MatcherFailed(self._library.get_error())
            return False
        self._token_ids.append(token_id)
        return True

    def rollback(self, num_tokens: int) -> None:
        num_stops = min(num_tokens, self._num_stops)
        self._num_stops -= num_stops
        num_tokens -= num_stops
        if num_tokens:
            del self._token_ids[-num_tokens:]
            self._library.rollback(num_tokens)

    def forced_tokens(self, limit: int) -> list[int]:
        forced = self.take_forced(limit)
        self.rollback(len(forced))
        return forced

    def take_forced(self, limit: int) -> list[int]:
        forced: list[int] = []
        library = self._library
        while len(forced) < limit and not self._num_stops and not library.is_accepting():
            tokens = library.compute_ff_tokens()[:1]
            if not tokens or tokens[0] in self._stops or not self._writable(tokens[0]):
                break
            if library.try_consume_tokens(tokens) == 0:
                break
            self._token_ids += tokens
            forced += tokens
        if library.is_error():
            self.rollback(len(forced))
            raise MatcherFailed(library.get_error())
        return forced

    def fill(self, bitmask: Bitmask, row: int) -> None:
        """By another copy: the library may take a row that it keeps for that of another branch."""
        if self._start is None:  # it computes no row, so its copies keep none
            self._start = self._original.library.deep_copy()
            self._start.try_consume_tokens(self._before)
        library = self._start.deep_copy()
        library.try_consume_tokens(self._token_ids)
        fill_next_token_bitmask(library, bitmask, row)

    def ends_with(self, token_ids: Sequence[int]) -> bool:
        """Not asked which of them are canonical where text is forced: their spelling stands."""
        if self._num_stops:
            return not token_ids
        # what is refused is soon refused, without a copy
        if self._library.validate_tokens([*token_ids]) < len(token_ids):
            return False
        library = self._library.deep_copy()
        num_taken: int = library.try_consume_tokens([*token_ids])
        return num_taken == len(token_ids) and bool(library.is_accepting())


class _GuardedScout:
    """One of a text in which no key comes twice; where every token repeats one it is lost."""

    __slots__ = ("_inner", "_places", "_text_of")

    def __init__(self, inner: _LLGuidanceScout, matcher: GuardedMatcher) -> None:
        self._inner = inner
        self._places = [matcher.place]
        self._text_of = matcher.text_of

    def accept(self, token_id: int) -> bool:
        place = self._places[-1].after(self._text_of(token_id))
        if place is None or not self._inner.accept(token_id):
            return False
        self._places.append(place)
        return True

    def rollback(self, num_tokens: int) -> None:
        self._inner.rollback(num_tokens)
        if num_tokens:
            del self._places[-num_tokens:]

    def forced_tokens(self, limit: int) -> list[int]:
        return self._inner.forced_tokens(limit)

    def take_forced(self, limit: int) -> list[int]:
        return _take_forced(self, limit, ())

    def fill(self, bitmask: Bitmask, row: int) -> None:
        self._inner.fill(bitmask, row)

    def ends_with(self, token_ids: Sequence[int]) -> bool:
        if not self._inner.ends_with(token_ids):  # soon said, where most of them are not taken
            return False
        place: Place | None = self._places[-1]
        for token_id in token_ids:
            place = place and place.after(self._text_of(token_id))
        return place is not None


def _take_forced(scout: Scout, limit: int, stop_token_ids: Sequence[int]) -> list[int]:
    """One by one, as far as they are taken; none where that fails."""
    taken: list[int] = []
    try:
        for token_id in scout.forced_tokens(limit):
            if token_id in stop_token_ids or not scout.accept(token_id):
                break
            taken.append(token_id)
    except BaseException:
        scout.rollback(len(taken))
        raise
    return taken
