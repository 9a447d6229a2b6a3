"""Whether free text is guessed in the next step: where it goes on as it, or another, did before.

Without guesses a step is launched before the one before it is read, which hides the host's work;
with them it waits. So they pay where enough of them hold, and a text shows beforehand where that
is: what is written is compared with what would have been guessed, in steps with guesses or without.

    n   requests;  g  guesses of theirs that will hold: as many as held behind matches of the kind
    A   seconds of a step that was launched ahead;  F  of one that was not;  G  of one with guesses
    guess   if (n + g) / G > n / A by a margin, where the step before is still running
            if (n + g) / G > n / F, where it was waited for already; g is then what it brought
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from structspec.drafters.base import Glimpse
from structspec.engine.batch import Batch, Drafting, SamplerOutput
from structspec.request import Request

logger = logging.getLogger("structspec")

_SHARE = 0.04  # of all time that may be spent on looking
_MARGIN = 1.05
_WEIGHT = 0.1  # of what was measured against that before it
_SURPRISE = 3.0  # times what something takes: more is the machine's
_RUN = 4  # steps without guesses are at least worth launching the first of them late
_FADING = 0.9995  # of that cost with each step without guesses: a bad moment is forgotten
_KEPT = 0.98  # of what matches of one kind showed, with each later one
_PRIOR_WEIGHT = 4.0  # matches
_PRIOR_HELD = 1.0  # guesses of each

Glimpser = Callable[[Sequence[Request], int], Sequence[Glimpse]]


class Outlook:
    """Says whether guesses pay in the next step, for requests without a grammar.

    Looks cost a small share of the time; what they said stands until the next.
    """

    def __init__(
        self, glimpse: Glimpser, limit: int, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """`glimpse` says what would be guessed, at most `limit` tokens of each request."""
        self._glimpse: Glimpser | None = glimpse
        self._limit = limit
        self._clock = clock
        self._gains = Gains()
        self._costs: dict[int, _Costs] = {}  # by the bits of the number of requests
        self._gain = 0.0  # g, as far as is known
        self._look_seconds = 0.0
        self._looked_at = float("-inf")
        self._last: float | None = None  # when the last step was read, if it was just before

    def choose(self, requests: Sequence[Request], *, is_ahead: bool) -> Drafting | None:
        """What the next step may draft; None where something else decides.

        `is_ahead`: whether it can be launched before another is read.
        """
        if self._glimpse is None or not _are_free(requests):
            self._last = None
            return None
        costs, num_requests = self._costs_of(len(requests)), len(requests)
        other = costs.ahead / _MARGIN if is_ahead else costs.returning
        least = max(0.0, num_requests * (costs.guessing / other - 1))
        if is_ahead or self._gain <= least:  # else guesses have just brought more
            self._look(requests, self._glimpse)
        return Drafting.GUESSES if self._gain > least else Drafting.CERTAIN

    def landed(self, batch: Batch, output: SamplerOutput, *, was_ahead: bool) -> None:
        """Learn from a step that was read now; its time, unless it has computed prompts."""
        now = self._clock()
        last, self._last = self._last, now
        guesses = any(scheduled.allows_guesses for scheduled in batch.requests)
        if guesses:
            self._gain = sum(output.num_accepted)
        if last is not None and batch.num_tokens <= len(batch.requests):
            costs = self._costs_of(len(batch.requests))
            costs.note(now - last, guesses=guesses, was_ahead=was_ahead)

    def paused(self) -> None:
        """Nothing was there to do for a while."""
        self._last = None

    def _costs_of(self, num_requests: int) -> _Costs:
        return self._costs.setdefault(num_requests.bit_length(), _Costs())

    def _look(self, requests: Sequence[Request], glimpse: Glimpser) -> None:
        start = self._clock()
        if start - self._looked_at < self._look_seconds / _SHARE:
            return
        asked = [request for request in requests if request.params.speculative]
        try:
            self._gain = self._gains.expect(asked, glimpse(asked, self._limit))
        except Exception as error:
            self._glimpse = None
            logger.error("the drafter failed to look ahead, and is not asked to again: %r", error)
        now = self._looked_at = self._clock()
        seconds = min(now - start, _SURPRISE * self._look_seconds or now - start)
        self._look_seconds += _WEIGHT * (seconds - self._look_seconds)


def _are_free(requests: Sequence[Request]) -> bool:
    """Whether nobody who may be guessed for has a grammar, and somebody may."""
    may_draft = [request for request in requests if request.params.speculative]
    return bool(may_draft) and all(
        request.matcher is None and not request.is_grammar_pending for request in may_draft
    )


@dataclass(slots=True)
class _Costs:
    """Seconds of steps, as far as they were seen."""

    _ahead: float = 0.0
    _fresh: float = 0.0
    _guessing: float = 0.0

    @property
    def ahead(self) -> float:
        """Of one that was launched while another ran."""
        return self._ahead or self._fresh or 1.0

    @property
    def returning(self) -> float:
        """Of a few: one that was not launched ahead, and some behind it that are."""
        return self.ahead + max(0.0, self._fresh - self.ahead) / _RUN

    @property
    def guessing(self) -> float:
        """Of one with guesses; before any was seen the least, so that one is."""
        return max(self._guessing, self.ahead)

    def note(self, seconds: float, *, guesses: bool, was_ahead: bool) -> None:
        """Count a step."""
        if guesses:
            self._guessing = _mixed(self._guessing, seconds)
            return
        self._guessing *= _FADING
        if was_ahead:
            self._ahead = _mixed(self._ahead, seconds)
        else:
            self._fresh = _mixed(self._fresh, seconds)


def _mixed(known: float, seconds: float) -> float:
    if not known:
        return seconds
    return known + _WEIGHT * (min(seconds, _SURPRISE * known) - known)


@dataclass(frozen=True, slots=True)
class _Pending:
    """A glimpse whose tokens may not be written yet."""

    request: Request
    first: int  # where it begins among the request's tokens
    glimpse: Glimpse


class Gains:
    """How many tokens of a glimpse are written as it says: learnt for each kind of match."""

    def __init__(self) -> None:
        self._pending: dict[int, _Pending] = {}  # by request: one at a time
        self._known: dict[tuple[str, int], tuple[float, float]] = {}  # held, and how many matches

    def expect(self, requests: Sequence[Request], glimpses: Sequence[Glimpse]) -> float:
        """How many of these will be, of all requests together."""
        self._judge()
        gain = 0.0
        for request, glimpse in zip(requests, glimpses, strict=True):
            if glimpse.token_ids:
                gain += min(self._held(glimpse.kind), len(glimpse.token_ids), _room(request))
                if request.request_id not in self._pending:
                    pending = _Pending(request, len(request.token_ids), glimpse)
                    self._pending[request.request_id] = pending
        return gain

    def _held(self, kind: tuple[str, int]) -> float:
        held, num_matches = self._known.get(kind, (0.0, 0.0))
        return (held + _PRIOR_WEIGHT * _PRIOR_HELD) / (num_matches + _PRIOR_WEIGHT)

    def _judge(self) -> None:
        """Look at what was written where glimpses were taken."""
        for request_id, pending in list(self._pending.items()):
            guessed = pending.glimpse.token_ids
            written = pending.request.token_ids[pending.first : pending.first + len(guessed)]
            num_held = _count_alike(guessed, written)
            is_known = num_held < len(written) or len(written) == len(guessed)
            if is_known:
                held, num_matches = self._known.get(pending.glimpse.kind, (0.0, 0.0))
                both = _KEPT * held + num_held, _KEPT * num_matches + 1
                self._known[pending.glimpse.kind] = both
            if is_known or pending.request.is_finished:
                del self._pending[request_id]


def _room(request: Request) -> int:
    """How many guesses it may have at most."""
    wanted = request.params.speculation.num_speculative_tokens
    num_left = max(0, request.max_tokens - request.num_output_tokens - 1)
    return num_left if wanted is None else min(wanted, num_left)


def _count_alike(guessed: Sequence[int], written: Sequence[int]) -> int:
    """How many tokens both begin with."""
    return next(
        (
            index
            for index, (one, other) in enumerate(zip(guessed, written, strict=False))
            if one != other
        ),
        min(len(guessed), len(written)),
    )
