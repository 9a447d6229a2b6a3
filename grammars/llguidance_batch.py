"""Rows and tokens of many llguidance matchers at once, in the library's own threads."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import takewhile
from operator import itemgetter

from llguidance import LLExecutor
from llguidance.numpy import (
    consume_token_par,
    fill_next_token_bitmask_par,
    fill_next_token_bitmask_par_with_draft_tokens,
)

from structspec.grammars.base import Bitmask, FillJob, Matcher, MatcherFailed, Move
from structspec.grammars.drafts import fill_job, fill_stop_row, is_allowed
from structspec.grammars.llguidance_followers import Follower, Work
from structspec.grammars.llguidance_matcher import LLGuidanceMatcher
from structspec.grammars.llguidance_threads import FAILED, FillThreads
from structspec.grammars.unique_keys import GuardedMatcher

_FIRST = itemgetter(0)
_MANY = 32  # to move fewer matchers by a token takes less than to wake threads


def inner_of(matcher: Matcher) -> LLGuidanceMatcher:
    """The matcher that the library is asked by."""
    if isinstance(matcher, LLGuidanceMatcher):
        return matcher
    assert isinstance(matcher, GuardedMatcher) and isinstance(matcher.inner, LLGuidanceMatcher)
    return matcher.inner


def fill_many(executor: LLExecutor, jobs: Sequence[FillJob], bitmask: Bitmask) -> list[int]:
    """Fill many requests' rows in parallel and say how many drafts of each are taken."""
    walks = {index: _Walk(job) for index, job in enumerate(jobs) if job.draft_token_ids}
    _fill_rows(executor, [job for job in jobs if not job.draft_token_ids], bitmask)
    drafted = [walk for walk in walks.values() if walk.text_draft]
    if drafted:
        drafted.sort(key=lambda walk: walk.matcher.original.number)
        fill_next_token_bitmask_par_with_draft_tokens(
            executor, [(walk.scout, walk.first_row, walk.text_draft) for walk in drafted], bitmask
        )
    counts = [0] * len(jobs)
    for index, walk in walks.items():
        counts[index] = walk.finish(bitmask)
    return counts


def _fill_rows(executor: LLExecutor, jobs: list[FillJob], bitmask: Bitmask) -> None:
    """Rows without drafts, by the library's own threads."""
    running: list[tuple[LLGuidanceMatcher, int]] = []
    for job in jobs:
        matcher = inner_of(job.matcher)
        if matcher.is_stopped:
            fill_stop_row(bitmask, job.first_row, matcher.vocabulary.stop_token_ids)
        else:
            running.append((matcher, job.first_row))
    # those of one original side by side: they wait for each other anyway
    running.sort(key=lambda pair: (pair[0].original.number, pair[1]))
    if running:
        rows = [(matcher.library_for_row(), row) for matcher, row in running]
        fill_next_token_bitmask_par(executor, rows, bitmask)
    for matcher, _ in running:
        matcher.note_row()
    for job in jobs:
        if isinstance(job.matcher, GuardedMatcher):
            job.matcher.take_repeats_here(bitmask, job.first_row)


def fill_followed(
    jobs: Sequence[FillJob],
    bitmask: Bitmask,
    threads: FillThreads,
    kinds: array[int],
    is_worth_asking: bool,
) -> list[int]:
    """Fill the rows that followers can fill, and say which jobs, by index, are left.

    Matchers without a follower ask for one where that is worth it.
    """
    left: list[int] = []
    rows: list[tuple[int, int, Follower, LLGuidanceMatcher]] = []  # what it took last, the job, who
    for index, job in enumerate(jobs):
        matcher = job.matcher
        inner = matcher if type(matcher) is LLGuidanceMatcher else inner_of(matcher)
        follower = inner.follower
        if follower is None and is_worth_asking:
            follower = inner.ask_for_follower()
        elif follower is not None and follower.is_astray:
            follower = inner.follower_for(0)
        if follower is None or inner.num_stops or job.draft_token_ids:
            left.append(index)
        else:
            rows.append((follower.cycles, index, follower, inner))
    if not rows:
        return left
    rows.sort(key=_FIRST)  # those that took longest are done first
    work, first, row_bytes = Work(), bitmask.ctypes.data, bitmask.strides[0]
    for _, index, follower, inner in rows:
        work.add(follower, inner.token_ids, (), first + jobs[index].first_row * row_bytes)
        follower.num_filled = follower.num_taken
    found, cycles = work.do(threads, kinds, bitmask.shape[1] * bitmask.itemsize)
    for (_, index, follower, inner), result, new in zip(rows, found, cycles, strict=True):
        follower.cycles = new
        matcher = jobs[index].matcher
        if result == FAILED:
            inner.drop_follower()
            left.append(index)
        elif inner is not matcher and isinstance(matcher, GuardedMatcher):
            matcher.take_repeats_here(bitmask, jobs[index].first_row)
    return left


def fill_one(executor: LLExecutor, job: FillJob, bitmask: Bitmask) -> int:
    """Fill one request's rows; drafts are walked by a copy, so that the matcher stays clean."""
    return fill_many(executor, [job], bitmask)[0] if job.draft_token_ids else fill_job(job, bitmask)


def take_many(executor: LLExecutor | None, moves: Sequence[Move]) -> list[Exception | None]:
    """Move matchers by tokens that their rows allow: the first of all together, and so on.

    Where there is an executor, in parallel. One token that a follower's row has shown is only
    noted: with the next row it is taken.
    """
    noted = [
        len(token_ids) == 1 and inner_of(matcher).has_followed_row for matcher, token_ids in moves
    ]
    order = [(inner_of(m[0]), i) for i, m in enumerate(moves) if not noted[i]]
    order.sort(key=lambda pair: pair[0].original.number)
    for position in range(max((len(moves[index][1]) for _, index in order), default=0)):
        steps = [
            (matcher.library, moves[index][1][position])
            for matcher, index in order
            if position < len(moves[index][1]) and not matcher.ends_with(moves[index][1][position])
        ]
        if executor is not None and len(steps) >= _MANY:
            consume_token_par(executor, steps)
            continue
        for library, token_id in steps:
            library.consume_token(token_id)
    return [_note(*move, not is_noted) for move, is_noted in zip(moves, noted, strict=True)]


def _note(matcher: Matcher, token_ids: Sequence[int], is_shown: bool) -> Exception | None:
    moved = inner_of(matcher)
    try:
        moved.note_taken(token_ids, is_shown=is_shown)
    except MatcherFailed as error:
        return error
    if isinstance(matcher, GuardedMatcher):
        matcher.note_taken(token_ids)
    return None


class _Walk:
    """A job with drafts, split into what llguidance walks itself (text) and what comes behind."""

    __slots__ = ("_job", "_places", "first_row", "matcher", "scout", "text_draft")

    def __init__(self, job: FillJob) -> None:
        guard = job.matcher if isinstance(job.matcher, GuardedMatcher) else None
        self._job, self.matcher, self.first_row = job, inner_of(job.matcher), job.first_row
        self._places = [] if guard is None else guard.places_of(job.draft_token_ids)
        # the library stops at a stop token and fails on an id it does not know
        self.text_draft: list[int] = []
        if self._places is not None and not self.matcher.is_stopped:
            self.text_draft = list(takewhile(self.matcher.is_writable, job.draft_token_ids))
        self.scout = self.matcher.scout()

    def finish(self, bitmask: Bitmask) -> int:
        """How many drafts are taken; fills the rows behind a stop token."""
        if self._places is None:  # a draft repeats a key: rare
            return fill_job(self._job, bitmask)
        row, stops = self.first_row, self.matcher.vocabulary.stop_token_ids
        if not self.text_draft:
            self.matcher.fill(bitmask, row)
        if self.scout.is_error():  # among the drafts, where nobody has gone yet
            self.matcher.original.has_failed = True
            return fill_job(FillJob(self._job.matcher, row, ()), bitmask)
        num_valid = 0
        for token_id in self._job.draft_token_ids:
            if not is_allowed(bitmask, row + num_valid, token_id):
                break
            num_valid += 1
            if token_id in stops:
                fill_stop_row(bitmask, row + num_valid, stops)
        if isinstance(self._job.matcher, GuardedMatcher):
            self._job.matcher.take_repeats(bitmask, row, self._places[: num_valid + 1])
        return num_valid
