"""A matcher that can be put back where it was, whatever happens on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from structspec.errors import EngineError
from structspec.grammars.base import BatchMatching, Bitmask, Matcher, MatcherFailed
from structspec.request import Request

_P = ParamSpec("_P")
_T = TypeVar("_T")


class TrackedMatcher:
    """Passes everything on to the matcher inside, and knows how far that was moved.

    Whatever goes wrong inside is a MatcherFailed: so it is told from a drafter's own faults.
    """

    __slots__ = ("inner", "num_moved")

    def __init__(self, inner: Matcher) -> None:
        self.inner = inner
        self.num_moved = 0

    def fill(self, bitmask: Bitmask, row: int, budget: int | None = None) -> None:
        """Write the allowed next tokens into `bitmask[row]`."""
        _ask(self.inner.fill, bitmask, row, budget)

    def accept(self, token_id: int) -> bool:
        """Advance by one token; False leaves the state unchanged."""
        is_taken = _ask(self.inner.accept, token_id)
        self.num_moved += is_taken
        return is_taken

    def take(self, matching: BatchMatching, token_ids: Sequence[int]) -> int:
        """Advance up to the first token that is refused, in one call; how many that were."""
        (taken,) = _ask(matching.take_unseen, [(self.inner, token_ids)])
        if isinstance(taken, Exception):
            raise MatcherFailed(repr(taken)) from taken
        self.num_moved += taken
        return taken

    def rollback(self, num_tokens: int) -> None:
        """Undo the last `num_tokens` accepted tokens."""
        _ask(self.inner.rollback, num_tokens)
        self.num_moved -= num_tokens

    def forced(self, limit: int) -> bytes:
        """The text that every valid continuation starts with."""
        return _ask(self.inner.forced, limit)

    def forced_tokens(self, limit: int) -> list[int]:
        """The tokens that the masks leave no choice about."""
        return _ask(self.inner.forced_tokens, limit)

    def tokens_to_end(self) -> int | None:
        """The fewest tokens to a valid end, if that is known."""
        return _ask(self.inner.tokens_to_end)


def _ask(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    try:
        return function(*args, **kwargs)
    except MatcherFailed:
        raise
    except Exception as error:
        raise MatcherFailed(repr(error)) from error


def track(request: Request) -> TrackedMatcher | None:
    """A tracked matcher of a request that has one: its own, where that is tracked already."""
    matcher = request.matcher
    if matcher is None or isinstance(matcher, TrackedMatcher):
        return matcher
    return TrackedMatcher(matcher)


@contextmanager
def left_in_place(request: Request, matcher: TrackedMatcher) -> Iterator[None]:
    """Put the request's matcher back in the end, and let what has failed in it be.

    It may be well but for what was asked of it; if it is not, its request fails when its rows are
    filled.
    """
    num_before = matcher.num_moved
    try:
        yield
    except MatcherFailed:
        pass
    finally:
        put_back(request, matcher, num_before)


def put_back(request: Request, matcher: TrackedMatcher, num_moved: int = 0) -> None:
    """Move a request's matcher back to where it was moved by so many tokens, if it is elsewhere.

    Where that fails the request does: nobody knows where its matcher stands.
    """
    try:
        if matcher.num_moved < num_moved:
            raise MatcherFailed("it was taken back behind its text's end while it was drafted for")
        matcher.rollback(matcher.num_moved - num_moved)
    except MatcherFailed as error:
        request.error = EngineError(f"the grammar failed: {error}")
        request.error.__cause__ = error
