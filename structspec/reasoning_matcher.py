"""Reasoning as a bound: a matcher around another, which sees the answer alone.

place       row                                                shown to the matcher inside
BEFORE      what it allows, or what begins the start marker    as long as it may be either
REASONING   everything but stop and padding tokens             no
  at limit  the next token of the end marker                   no
BREAK       what it allows, or line breaks                     the first that is no line break
ANSWER      what it allows                                     yes
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from structspec.ending_search import EndingSearch
from structspec.grammars.base import Bitmask, FillJob, Matcher, Row
from structspec.grammars.scouts import scout_of
from structspec.grammars.wrapping import WrappedMatcher
from structspec.reasoning_boundary import (
    ANSWER,
    ANSWERED,
    BEFORE,
    BREAK,
    REASONING,
    Boundary,
    State,
)
from structspec.reasoning_prefix import AnswerPrefix


@dataclass(frozen=True, slots=True)
class ReasoningBound:
    """One request's bound: puts a ReasoningMatcher around its matcher.

    `limit` is how many tokens of reasoning there may be at most, None where only `max_tokens`, of
    which `answer_share` is kept for the answer, bounds them. With `is_required` the start marker
    is written where it does not stand in the prompt already. Where the matcher inside does not know
    how long an answer is at least, an `ending` finds a short one.
    """

    boundary: Boundary
    initial: State
    max_tokens: int
    limit: int | None = None
    answer_share: float = 0.25
    is_required: bool = False
    ending: EndingSearch | None = None

    def around(self, matcher: Matcher) -> ReasoningMatcher:
        """A matcher at the start of the output."""
        matcher = AnswerPrefix(self.boundary.answer_ids).around(matcher)
        return ReasoningMatcher(
            matcher,
            self.boundary,
            self.initial,
            self._count_reasoning(self._count_answer(matcher)),
            is_required=self.is_required,
        )

    def widen(self, row: Row | None) -> Row | None:
        """None: nearly everything may stand in reasoning."""
        return None

    def _count_answer(self, matcher: Matcher) -> int:
        """How many tokens a short answer takes, its stop token too; 0 where that is not known."""
        num_to_end = matcher.tokens_to_end()
        if num_to_end is None and self.ending is not None:
            scout = scout_of(matcher, self.ending.stop_token_ids)
            found = self.ending.find_among(scout, self.max_tokens)
            num_to_end = None if found is None else len(found) + 1
        return num_to_end or 0

    def _count_reasoning(self, num_to_end: int) -> int:
        """How many tokens of reasoning leave room for the markers and the answer."""
        boundary = self.boundary
        kept = max(ceil(self.answer_share * self.max_tokens), num_to_end)
        kept += boundary.max_to_end + bool(boundary.break_ids)
        if self.initial.phase == BEFORE:
            kept += len(boundary.start)  # at most so many tokens spell it
        room = max(0, self.max_tokens - kept)
        return room if self.limit is None else min(room, self.limit)


class _Undo(NamedTuple):
    """What stood before a token outside reasoning and the answer."""

    state: State
    open: tuple[int, ...] | None
    is_shown: bool  # to the matcher inside, which took it


class ReasoningMatcher(WrappedMatcher):
    """Allows reasoning, then what the matcher inside allows; a step's cost does not grow."""

    __slots__ = (
        "_boundary",
        "_history",
        "_is_required",
        "_limit",
        "_num_answered",
        "_num_reasoned",
        "_open",
        "_state",
    )

    def __init__(
        self,
        inner: Matcher,
        boundary: Boundary,
        initial: State,
        limit: int,
        *,
        is_required: bool = False,
    ) -> None:
        super().__init__(inner)
        self._boundary = boundary
        self._state = initial
        self._limit = limit
        self._is_required = is_required
        self._num_reasoned = 0
        self._num_answered = 0  # tokens behind those of the history
        self._history: list[State | _Undo] = []
        # tokens of which it is open whether they are the start marker's or the answer's; None: none
        self._open: tuple[int, ...] | None = () if initial.phase == BEFORE else None
        if is_required:
            self._open = None

    def fill(self, bitmask: Bitmask, row: int, budget: int | None = None) -> None:
        """Write the allowed next tokens into `bitmask[row]`."""
        (phase, place), boundary = self._state, self._boundary
        token_id = self._forced_token()
        if token_id is not None:
            _allow_one(bitmask, row, token_id)
        elif phase == BEFORE:
            self._fill_before(bitmask, row, place, budget)
        elif phase == REASONING and self._has_room(budget, 1 + boundary.max_to_end):
            bitmask[row] = boundary.row(place)
        elif phase == REASONING:
            _allow_one(bitmask, row, boundary.next_of_end(place))
        else:
            self.inner.fill(bitmask, row, budget)
            if phase == BREAK and self._has_room(budget, 1):
                bitmask[row] |= boundary.break_row

    def accept(self, token_id: int) -> bool:
        """Advance by one token; False leaves the state unchanged."""
        phase = self._state.phase
        if phase == ANSWER:
            is_taken = self.inner.accept(token_id)
            self._num_answered += is_taken
            return is_taken
        forced = self._forced_token()
        if forced is not None and token_id != forced:
            return False
        state = self._boundary.advance(self._state, token_id)
        if state is None:
            return False
        if phase == REASONING:
            self._history.append(self._state)
            self._num_reasoned += 1
            self._state = state
            return True
        return self._move_on(state, token_id)

    def rollback(self, num_tokens: int) -> None:
        """Undo the last `num_tokens` accepted tokens."""
        num_answered = min(num_tokens, self._num_answered)
        if num_answered:
            self.inner.rollback(num_answered)
            self._num_answered -= num_answered
        for _ in range(num_tokens - num_answered):
            self._undo(self._history.pop())

    def forced(self, limit: int) -> bytes:
        """The text that every valid continuation starts with, a forced marker's too."""
        if self._state.phase == ANSWER:
            return self.inner.forced(limit)
        text = b""
        for token_id in self._forced_chain(limit):
            data = self._boundary.symbols_of(token_id)
            if not isinstance(data, bytes):  # a special token, which is no text
                break
            text += data
        return text[:limit]

    def forced_tokens(self, limit: int) -> list[int]:
        """The tokens that the masks leave no choice about, a forced marker's too."""
        if self._state.phase == ANSWER:
            return self.inner.forced_tokens(limit)
        chain = self._forced_chain(limit)
        if len(chain) == limit or not chain:
            return chain
        num_taken = 0
        try:
            for token_id in chain:
                is_taken = self.accept(token_id)
                assert is_taken
                num_taken += 1
            is_behind = self._state.phase == ANSWER
            return chain + (self.inner.forced_tokens(limit - num_taken) if is_behind else [])
        finally:
            self.rollback(num_taken)

    def inner_job(self, job: FillJob) -> FillJob | None:
        """The same for the matcher inside, once the answer has begun."""
        if self._state.phase != ANSWER:
            return None
        return FillJob(self.inner, job.first_row, job.draft_token_ids)

    def tokens_to_end(self) -> int | None:
        """The fewest tokens to a valid end, an end marker that is missing among them."""
        num_inside = self.inner.tokens_to_end()
        if num_inside is None:
            return None
        phase, place = self._state
        boundary = self._boundary
        if phase == REASONING:
            return boundary.num_to_end(place) + num_inside
        if phase == BEFORE and self._open is None:
            return boundary.num_to_start(place) + boundary.num_to_end() + num_inside
        return num_inside

    def _forced_token(self) -> int | None:
        """The one token that may stand here, where that is a marker's."""
        phase, place = self._state
        if phase == REASONING and self._num_reasoned >= self._limit:
            return self._boundary.next_of_end(place)
        if phase == BEFORE and self._is_required:
            return self._boundary.next_of_start(place)
        return None

    def _forced_chain(self, limit: int) -> list[int]:
        """The tokens of forced markers from here on."""
        chain: list[int] = []
        try:
            while len(chain) < limit and (token_id := self._forced_token()) is not None:
                is_taken = self.accept(token_id)
                assert is_taken
                chain.append(token_id)
        finally:
            self.rollback(len(chain))
        return chain

    def _move_on(self, state: State, token_id: int) -> bool:
        """Advance where the matcher inside may have to see the token."""
        before, open_ = self._state, self._open
        may_answer = before.phase != BEFORE or open_ is not None
        if state == ANSWERED:
            is_shown = may_answer and self.inner.accept(token_id)
            if not is_shown:
                return False
        else:
            may_still = state.phase == BEFORE and open_ is not None
            is_shown = may_still and self.inner.accept(token_id)
            if open_ is not None:
                if is_shown:
                    self._open = (*open_, token_id)
                else:  # it is the start marker: what was taken for an answer is none
                    self.inner.rollback(len(open_))
                    self._open = None
        self._history.append(_Undo(before, open_, is_shown))
        self._state = state
        return True

    def _undo(self, last: State | _Undo) -> None:
        if isinstance(last, State):
            self._num_reasoned -= 1
            self._state = last
            return
        if last.is_shown:
            self.inner.rollback(1)
        elif self._open is None:
            for token_id in last.open or ():
                is_taken = self.inner.accept(token_id)
                assert is_taken
        self._state, self._open = last.state, last.open

    def _fill_before(self, bitmask: Bitmask, row: int, place: int, budget: int | None) -> None:
        boundary = self._boundary
        has_room = self._has_room(budget, 1 + boundary.max_to_start + boundary.max_to_end)
        if self._open is not None:
            self.inner.fill(bitmask, row, budget)
            if has_room:
                bitmask[row] |= boundary.start_row(place)
        elif has_room:
            bitmask[row] = boundary.start_row(place)
        else:
            _allow_one(bitmask, row, boundary.next_of_start(place))

    def _has_room(self, budget: int | None, num_tokens: int) -> bool:
        """Whether behind so many tokens a text of the matcher inside has room."""
        num_inside = None if budget is None else self.inner.tokens_to_end()
        return budget is None or num_inside is None or num_tokens + num_inside <= budget


def _allow_one(bitmask: Bitmask, row: int, token_id: int) -> None:
    bitmask[row] = 0
    bitmask[row].view("uint32")[token_id // 32] = 1 << token_id % 32
