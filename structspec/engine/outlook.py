"""Whether free text is guessed in the next step: where it goes on as it, or another, did before.

Without guesses a step is launched before the one before it is read, which hides the host's work;
with them it waits. So they pay where enough of them hold, and a text shows beforehand where that
is: what is written is compared with what would have been guessed, in steps with guesses or without.

    n   requests;  g  guesses of theirs that will hold: as many as held behind matches of the kind,
        less the token that a running step writes; and of that what drafts have made true of late
    A   seconds of a step that was launched ahead;  F  of one that was not;  G  of one with guesses
    guess   if (n + g) / G > n / A by a margin, with a part of F - A in G where the step before is
            still running, and in A where it was waited for; g is then what that one has brought
    c   steps of A that guesses have saved or lost so far, as far as that is not made good: each
        step launched ahead makes good a hundredth of one;  u  steps that are few to lose
    where c < 0 2 ** (-c / u) times as much has to be expected: what is foreseen is too much then
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from structspec.drafters.base import Glimpse
from structspec.engine.batch import Batch, Drafting, SamplerOutput
from structspec.engine.gains import Gains, Trust
from structspec.engine.guess_costs import GuessCosts
from structspec.request import Request

logger = logging.getLogger("structspec")

_SHARE = 0.08  # of all time may be spent on looking for one request, which the device leaves,
_MOST_ASKED = 16  # requests in one look
_LEAST_SHARE = 0.01  # and for many, whose gain together changes the more slowly;
_MOST_IN_VAIN = 2  # halves of that, where nothing is to be expected soon
_SURPRISE = 3.0  # times what something takes: more is the machine's
_FIRST_LOOK = 0.1  # of it is what looks take: the texts so far are taken in
_LOOK_WEIGHT = 0.5  # of a look that took longer than the one before
_REST = 1024  # steps after a fault

# where a gain is foreseen: before the last token is known, with it, and where guesses just gained
_AHEAD, _FRESH, _AGAIN, _NUM_SOURCES = range(4)

Glimpser = Callable[[Sequence[Request], int], Sequence[Glimpse]]


class Outlook:
    """Says whether guesses pay in the next step, for requests without a grammar.

    Looks cost a small share of the time; what they said stands until the next.
    """

    def __init__(
        self,
        glimpse: Glimpser,
        limit: int,
        clock: Callable[[], float] = time.perf_counter,
        on_fault: Callable[[], None] = lambda: None,
    ) -> None:
        """`glimpse` says what would be guessed, at most `limit` tokens of each request.

        Where that fails `on_fault` is called, and for a while something else decides.
        """
        self._glimpse = glimpse
        self._on_fault = on_fault
        self._num_to_rest, self._has_logged = 0, False
        self._limit = limit
        self._clock = clock
        self._gains = Gains()
        self._known: Sequence[Request] = ()
        self._is_free = False  # of these
        self._costs: dict[int, GuessCosts] = {}  # by the bits of the last request's number
        self._gain = 0.0  # g, as far as is known
        self._last_gain: int | None = None  # of the last step, if it was one with guesses
        self._trust = [Trust() for _ in range(_NUM_SOURCES)]
        self._num_looks = 0
        self._num_in_vain = 0  # of the last looks: they saw less than half of what would pay
        self._look_seconds = 0.0
        self._looked_at = float("-inf")
        self._last: float | None = None  # when the last step was read, if it was just before

    def choose(self, requests: Sequence[Request], *, is_ahead: bool) -> Drafting | None:
        """What the next step may draft; None where something else decides.

        `is_ahead`: whether it can be launched before another is read.
        """
        is_free = self._are_free(requests)  # asked in any case: finished ones are let go of by it
        if self._num_to_rest or not is_free:
            self._num_to_rest = max(0, self._num_to_rest - 1)
            self._last = self._last_gain = None
            self._gain = 0.0  # until something is seen where it decides again
            return None
        costs, num_requests = self._costs_of(len(requests)), len(requests)
        if self._last_gain is not None:
            self._foresee(_AGAIN, self._last_gain)
        pays = costs.pays(self._gain, num_requests, is_ahead=is_ahead)
        if self._last_gain is None or not pays:  # else guesses have just brought more
            has_looked = self._look(requests, is_ahead=is_ahead)
            pays = costs.pays(self._gain, num_requests, is_ahead=is_ahead)
            if has_looked:
                is_near = costs.pays(2 * self._gain, num_requests, is_ahead=is_ahead)
                self._num_in_vain = 0 if is_near else min(self._num_in_vain + 1, _MOST_IN_VAIN)
        return Drafting.GUESSES if pays else Drafting.NOTHING

    def launched(self, *, guesses: bool) -> None:
        """Note whether a step that was to guess has found any guesses."""
        if not guesses:
            self._gained(0)
            self._gain = 0.0  # until something else is seen

    def landed(
        self, batch: Batch, output: SamplerOutput, *, guesses: bool, was_ahead: bool
    ) -> None:
        """Learn from a step that was read now; its time, unless it has computed prompts."""
        now = self._clock()
        last, self._last = self._last, now
        self._last_gain = sum(output.num_accepted) if guesses else None
        self._gained(self._last_gain)
        if last is not None and batch.num_tokens <= len(batch.requests):
            # some may have sat it out, and it was chosen for all
            num_requests = max(len(self._known), len(batch.requests))
            num_tokens = len(batch.requests) + sum(output.num_accepted)
            self._costs_of(num_requests).note(
                now - last, num_tokens, num_requests, guesses=guesses, was_ahead=was_ahead
            )

    def paused(self) -> None:
        """Nothing was there to do for a while."""
        self._last = None

    def _gained(self, num_tokens: int | None) -> None:
        for trust in self._trust:
            trust.landed(num_tokens)

    def _are_free(self, requests: Sequence[Request]) -> bool:
        """Whether nobody has a grammar, and somebody may be guessed for."""
        if requests != self._known:  # mostly they are those of the step before
            if 2 * len(set(requests) & set(self._known)) < len(requests):
                self._gain, self._last_gain, self._num_in_vain = 0.0, None, 0  # of other texts
            self._known = list(requests)
            may_draft = any(request.params.speculative for request in requests)
            self._is_free = may_draft and not any(map(_is_constrained, requests))
            if not self._is_free:
                self._gains.forget_pending()
        return self._is_free

    def _costs_of(self, num_requests: int) -> GuessCosts:
        bits = (num_requests - 1).bit_length()
        if bits not in self._costs:
            costs = GuessCosts(num_requests)
            nearest = min(self._costs, key=lambda other: abs(other - bits), default=None)
            self._costs[bits] = costs if nearest is None else costs.like(self._costs[nearest])
        return self._costs[bits]

    def _choose_some(self, requests: Sequence[Request]) -> Sequence[Request]:
        """All of a few; of many some, others each time, that stand for all."""
        if len(requests) <= _MOST_ASKED:
            return requests
        self._num_looks += 1
        step = -(-len(requests) // _MOST_ASKED)
        return requests[self._num_looks % step :: step]

    def _foresee(self, source: int, gain: float) -> None:
        """Expect so much of the next step, as far as it can be trusted."""
        for trust in self._trust:
            trust.foreseen = 0.0
        self._trust[source].foreseen = gain
        self._gain = gain * self._trust[source].share

    def _look(self, requests: Sequence[Request], *, is_ahead: bool) -> bool:
        """See what would be guessed, if it is time for that; whether it was."""
        start = self._clock()
        share = max(_SHARE / len(requests), _LEAST_SHARE / 2**self._num_in_vain)
        if start - self._looked_at < self._look_seconds / share:
            return False
        # of others the prompt may not be computed yet, which a drafter takes in with it
        asked = [one for one in requests if one.params.speculative and one.num_output_tokens]
        if not asked:
            self._gain = 0.0
            return False
        some = self._choose_some(asked)
        try:
            gain = self._gains.expect(some, self._glimpse(some, self._limit), is_ahead=is_ahead)
            self._foresee(_AHEAD if is_ahead else _FRESH, gain * len(asked) / len(some))
        except Exception as error:
            self._rest(error)
        now = self._looked_at = self._clock()
        self._note_look(now - start)
        return True

    def _note_look(self, seconds: float) -> None:
        """Remember what a look takes; new texts make one dear, and the next is not for that."""
        known = self._look_seconds
        if not known:
            self._look_seconds = _FIRST_LOOK * seconds
        elif seconds < known:
            self._look_seconds = seconds
        else:
            self._look_seconds += _LOOK_WEIGHT * (min(seconds, _SURPRISE * known) - known)

    def _rest(self, error: Exception) -> None:
        self._on_fault()
        self._num_to_rest, self._gain = _REST, 0.0
        self._gains.forget_pending()
        if not self._has_logged:
            self._has_logged = True
            logger.error("the drafter failed to look ahead, and rests", exc_info=error)


def _is_constrained(request: Request) -> bool:
    return request.compiled is not None or request.matcher is not None
