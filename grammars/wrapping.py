"""Matchers around matchers: what a request asks beyond its grammar, token by token.

A request may have `wrappers`: each puts a matcher of its own around the one before, the first
around that of the grammar, or around `FreeMatcher` where there is none. Drafts, masks, verification
and preemption know only the outermost, so they hold for what it asks too.

    Limits ( Reasoning ( the grammar's matcher ) )

A library's calls for many of its matchers at once would pass by what is around them, so wrapped
ones are moved and asked one by one (`WrappedMatching`), but where a matcher says that its rows are
those of the one inside, narrowed: then these are filled at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from structspec.grammars.base import BatchMatching, Bitmask, FillJob, Look, Matcher, Move, Row, Seen
from structspec.grammars.drafts import (
    clear_tail,
    fill_job,
    fill_stop_row,
    look_each,
    take_allowed,
    take_each,
    take_first_allowed,
)
from structspec.vocabulary import Vocabulary


class Wrapper(Protocol):
    """Puts matchers around others; made for a vocabulary, thread-safe, without state of a text."""

    def around(self, matcher: Matcher) -> Matcher:
        """A matcher around one at the start of a text; it keeps the laws of `Matcher`.

        Where its `accept` refuses all tokens its `fill` raises DeadEnd, stop tokens in the row.
        """

    def widen(self, row: Row | None) -> Row | None:
        """A row that allows what rows of its matchers do, where those inside allow `row` at most.

        None stands for all tokens. Rows are told apart by identity: one that need not change is
        returned as it is.
        """


class WrappedMatcher:
    """Passes everything on to the matcher inside; what differs is overridden."""

    __slots__ = ("inner",)

    def __init__(self, inner: Matcher) -> None:
        self.inner = inner

    def fill(self, bitmask: Bitmask, row: int, budget: int | None = None) -> None:
        """Write the allowed next tokens into `bitmask[row]`."""
        self.inner.fill(bitmask, row, budget)

    def accept(self, token_id: int) -> bool:
        """Advance by one token; False leaves the state unchanged."""
        return self.inner.accept(token_id)

    def rollback(self, num_tokens: int) -> None:
        """Undo the last `num_tokens` accepted tokens."""
        self.inner.rollback(num_tokens)

    def forced(self, limit: int) -> bytes:
        """The text that every valid continuation starts with."""
        return self.inner.forced(limit)

    def forced_tokens(self, limit: int) -> list[int]:
        """The tokens that the masks leave no choice about."""
        return self.inner.forced_tokens(limit)

    def tokens_to_end(self) -> int | None:
        """The fewest tokens to a valid end, if that is known."""
        return self.inner.tokens_to_end()

    def inner_job(self, job: FillJob) -> FillJob | None:
        """A job for the matcher inside whose rows `narrow` makes those of this one.

        None where they have to be filled by `fill`.
        """
        return None

    def passes(self, num_tokens: int) -> bool:
        """Whether the matcher inside alone can be moved by so many tokens, to be told by `passed`.

        Those that it takes are those that this one would.
        """
        return False

    def may_look_inside(self, num_tokens: int) -> bool:
        """Whether so many tokens are seen well enough by the matcher inside.

        Those that this one would refuse in their middle are drafted in vain.
        """
        return self.passes(num_tokens)

    def passed(self, num_tokens: int) -> None:
        """The matcher inside was moved by so many tokens."""

    def narrow(self, job: FillJob, bitmask: Bitmask, num_valid: int) -> int:
        """Make this matcher's rows of those inside, which take so many drafts; how many it takes.

        Raises DeadEnd for the first row only.
        """
        return num_valid


class LateWrapper(Wrapper, Protocol):
    """One that need not be there from the start."""

    @property
    def wrap_at(self) -> int:
        """How many tokens of output are taken before it has to be there."""

    @property
    def is_hopeless(self) -> bool:
        """Whether it is known to change nothing."""

    def behind(self, matcher: Matcher, num_tokens: int) -> Matcher:
        """A matcher around one that has taken so many tokens."""


class FreeMatcher:
    """Of a request without a constraint: any token may stand anywhere, but none behind the end."""

    __slots__ = ("_num_stops", "_vocabulary")

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._num_stops = 0  # the last tokens; before them there is no state

    def fill(self, bitmask: Bitmask, row: int, budget: int | None = None) -> None:
        """Allow everything, or behind a stop token stop tokens; the budget is ignored."""
        if self._num_stops:
            fill_stop_row(bitmask, row, self._vocabulary.stop_token_ids)
        else:
            bitmask[row] = -1
            clear_tail(bitmask, row, self._vocabulary.vocab_size)

    def accept(self, token_id: int) -> bool:
        """Advance by one token; False leaves the state unchanged."""
        is_stop = token_id in self._vocabulary.stop_token_ids
        self._num_stops += is_stop
        return is_stop or (not self._num_stops and 0 <= token_id < self._vocabulary.vocab_size)

    def rollback(self, num_tokens: int) -> None:
        """Undo the last `num_tokens` accepted tokens."""
        self._num_stops = max(0, self._num_stops - num_tokens)

    def forced(self, limit: int) -> bytes:
        """Nothing."""
        return b""

    def forced_tokens(self, limit: int) -> list[int]:
        """None."""
        return []

    def tokens_to_end(self) -> int | None:
        """None: free text is whole wherever it is cut, and need not be hurried to an end."""
        return None


class WrappedMatching:
    """Rows and tokens of many wrapped matchers, those innermost of one backend, or of none."""

    def __init__(self, vocabulary: Vocabulary, backend: BatchMatching | None = None) -> None:
        self._vocabulary = vocabulary
        self._backend = backend

    def fill_drafts(self, jobs: Sequence[FillJob], bitmask: Bitmask) -> list[int]:
        """Fill the rows of many requests and say how many drafts each one's matcher takes.

        Raises DeadEnd where that is what a request's text has come to.
        """
        counts = [0] * len(jobs)
        bare: dict[int, FillJob] = {}
        inner: dict[int, FillJob] = {}
        for index, job in enumerate(jobs):
            is_wrapped = isinstance(job.matcher, WrappedMatcher)
            passed = _wrapped(job).inner_job(job) if is_wrapped else None
            if passed is not None:
                inner[index] = passed
            elif is_wrapped or self._backend is None:
                counts[index] = fill_job(job, bitmask)
            else:
                bare[index] = job
        if self._backend is not None and bare:
            found = self._backend.fill_drafts([*bare.values()], bitmask)
            for index, count in zip(bare, found, strict=True):
                counts[index] = count
        if inner:
            found = self.fill_drafts([*inner.values()], bitmask)
            for index, count in zip(inner, found, strict=True):
                counts[index] = _wrapped(jobs[index]).narrow(jobs[index], bitmask, count)
        return counts

    def take_shown(self, moves: Sequence[Move]) -> list[Exception | None]:
        """Move each matcher by tokens that its rows allow, and say what went wrong with it.

        DeadEnd where those were the stop tokens of a dead end behind a draft.
        """
        passing, others = self._split([(matcher, len(ids)) for matcher, ids in moves])
        errors: list[Exception | None] = [None] * len(moves)
        if passing:
            found = self._inside.take_shown([_inner(moves[index]) for index in passing])
            for index, error in zip(passing, found, strict=True):
                errors[index] = error
                _as_wrapped(moves[index][0]).passed(len(moves[index][1]))
        for index, error in zip(others, take_each([moves[i] for i in others]), strict=True):
            errors[index] = error and self._reason(moves[index][0], error)
        return errors

    def take_unseen(self, moves: Sequence[Move]) -> list[int | Exception]:
        """Move each matcher up to the first token that it refuses; how many it took."""
        passing, others = self._split([(matcher, len(ids)) for matcher, ids in moves])
        counts: dict[int, int | Exception] = {}
        if passing:
            found = self._inside.take_unseen([_inner(moves[index]) for index in passing])
            for index, count in zip(passing, found, strict=True):
                counts[index] = count
                _as_wrapped(moves[index][0]).passed(count if isinstance(count, int) else 0)
        counts |= zip(others, take_allowed([moves[index] for index in others]), strict=True)
        return [counts[index] for index in range(len(moves))]

    def take_first(self, moves: Sequence[Move]) -> list[int | Exception]:
        """Move each matcher by the first of its tokens that it takes; which it was."""
        passing, others = self._split([(matcher, 1) for matcher, _ in moves])
        places: dict[int, int | Exception] = {}
        if passing:
            found = self._inside.take_first([_inner(moves[index]) for index in passing])
            for index, place in zip(passing, found, strict=True):
                places[index] = place
                is_taken = isinstance(place, int) and place < len(moves[index][1])
                _as_wrapped(moves[index][0]).passed(int(is_taken))
        places |= zip(others, take_first_allowed([moves[i] for i in others]), strict=True)
        return [places[index] for index in range(len(moves))]

    def look_ahead(self, looks: Sequence[Look]) -> list[Seen | Exception]:
        """Look ahead of matchers, those one by one that nothing inside can be asked for."""
        passing, others = self._split([(look.matcher, look.limit) for look in looks], looks=True)
        seen: dict[int, Seen | Exception] = {}
        if passing:
            inner = [
                looks[index]._replace(matcher=_as_wrapped(looks[index].matcher).inner)
                for index in passing
            ]
            seen |= zip(passing, self._inside.look_ahead(inner), strict=True)
        seen |= zip(others, look_each([looks[index] for index in others]), strict=True)
        return [seen[index] for index in range(len(looks))]

    @property
    def _inside(self) -> BatchMatching:
        assert self._backend is not None
        return self._backend

    def _split(
        self, moves: Sequence[tuple[Matcher, int]], *, looks: bool = False
    ) -> tuple[list[int], list[int]]:
        """Which of them the matchers right inside, those of the backend, can be moved by.

        With `looks`, may look ahead by.
        """
        passing: list[int] = []
        others: list[int] = []
        for index, (matcher, num_tokens) in enumerate(moves):
            may_pass = (
                self._backend is not None
                and isinstance(matcher, WrappedMatcher)
                and not isinstance(matcher.inner, WrappedMatcher)
                and (matcher.may_look_inside if looks else matcher.passes)(num_tokens)
            )
            (passing if may_pass else others).append(index)
        return passing, others

    def _reason(self, matcher: Matcher, error: Exception) -> Exception:
        try:
            matcher.fill(np.zeros((1, self._vocabulary.num_words), np.int32), 0)
        except Exception as reason:
            return reason
        return error


def _wrapped(job: FillJob) -> WrappedMatcher:
    return _as_wrapped(job.matcher)


def _as_wrapped(matcher: Matcher) -> WrappedMatcher:
    assert isinstance(matcher, WrappedMatcher)
    return matcher


def _inner(move: Move) -> Move:
    matcher, token_ids = move
    return _as_wrapped(matcher).inner, token_ids
