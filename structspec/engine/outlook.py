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
        step launched ahead makes good a hundredth of one
    where c < 0 as much more has to be expected as 2 ** -c: what is foreseen is too much then
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from structspec.drafters.base import Glimpse
from structspec.engine.batch import Batch, Drafting, SamplerOutput
from structspec.request import Request

logger = logging.getLogger("structspec")

_SHARE = 0.08  # of all time may be spent on looking for one request, which the device leaves,
_MOST_ASKED = 16  # requests in one look
_LEAST_SHARE = 0.01  # and for many, whose gain together changes the more slowly;
_MOST_IN_VAIN = 2  # halves of that, where nothing is to be expected soon
_MARGIN = 1.03
_MORE = 0.5  # for many: whose texts then end one by one, each with another's prompt behind it
_MANY = 16  # requests, for which it is half of that
_WEIGHT = 0.1  # of what was measured against that before it
_SURPRISE = 3.0  # times what something takes: more is the machine's
_FIRST_SURPRISE = 10.0  # times what a step launched ahead takes: of the first of another kind
_FEW = 2  # steps with guesses for which others are launched late behind them
_FADING = 0.9995  # of what others take, with each step launched ahead: a bad moment is forgotten
_FIRST_LOOK = 0.1  # of it is what looks take: the texts so far are taken in
_LOOK_WEIGHT = 0.5  # of a look that took longer than the one before
_REST = 1024  # steps after a fault
_LEAST_VARIANCE = 0.5  # of what steps have gained, for it to say more than their mean
_KEPT = 0.98  # of what matches of one kind showed, with each later one
_MADE_GOOD = 0.01  # of a step that guesses have lost, with each that is launched ahead
_FEW_LOST = 8.0  # steps, all requests together: what the guesses of few bring varies
_MOST_SAVED = 6.0  # times that are remembered,
_MOST_LOST = 20.0
_PRIOR_WEIGHT = 4.0  # matches
_PRIOR_HELD = 1.0  # guesses of each
_PRIOR_TOKENS = 16.0  # foreseen and gained
_SHORT_MATCH = 1  # token, which may be one by chance
_FORGIVEN = 0.0005  # of the distrust in what is foreseen, with each step without guesses

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
        self._costs: dict[int, _Costs] = {}  # by the bits of the last request's number
        self._gain = 0.0  # g, as far as is known
        self._last_gain: int | None = None  # of the last step, if it was one with guesses
        self._trust = [_Trust() for _ in range(_NUM_SOURCES)]
        self._num_looks = 0
        self._num_in_vain = 0  # of the last looks: they saw less than half of what would pay
        self._look_seconds = 0.0
        self._looked_at = float("-inf")
        self._last: float | None = None  # when the last step was read, if it was just before

    def choose(self, requests: Sequence[Request], *, is_ahead: bool) -> Drafting | None:
        """What the next step may draft; None where something else decides.

        `is_ahead`: whether it can be launched before another is read.
        """
        if self._num_to_rest or not self._are_free(requests):
            self._num_to_rest = max(0, self._num_to_rest - 1)
            self._last = None
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
                self._gain, self._last_gain = 0.0, None  # of other texts
            self._known = list(requests)
            may_draft = any(request.params.speculative for request in requests)
            self._is_free = may_draft and not any(map(_is_constrained, requests))
            if not self._is_free:
                self._gains.forget_pending()
        return self._is_free

    def _costs_of(self, num_requests: int) -> _Costs:
        bits = (num_requests - 1).bit_length()
        if bits not in self._costs:
            costs = _Costs(num_requests)
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
        self._num_to_rest = _REST
        if not self._has_logged:
            self._has_logged = True
            logger.error("the drafter failed to look ahead, and rests", exc_info=error)


def _is_constrained(request: Request) -> bool:
    return request.compiled is not None or request.matcher is not None


class _Costs:
    """Seconds of steps, as far as they were seen, and whether guesses have been worth theirs."""

    def __init__(self, num_requests: int) -> None:
        self._ahead = 0.0
        self._fresh = 0.0
        self._guessing = _Line()
        self._unit = max(1.0, _FEW_LOST / num_requests)  # steps that are few to lose
        self._num_saved = 0.0  # steps

    def like(self, other: _Costs) -> _Costs:
        """This one, with what another has seen."""
        self._ahead, self._fresh = other._ahead, other._fresh
        self._guessing = replace(other._guessing)
        return self

    @property
    def _usual(self) -> float:
        """Of a step that was launched while another ran."""
        return self._ahead or self._fresh or 1.0

    def pays(self, gain: float, num_requests: int, *, is_ahead: bool) -> bool:
        """Whether a step should guess of which so much is expected."""
        if gain <= 0:
            return False
        usual = self._usual
        late = max(0.0, self._fresh - usual)  # what it costs to begin and to stop is shared out
        # before any was seen the least, so that one is
        guessing = max(usual, self._guessing.at(gain))
        if is_ahead:
            more = 1 + _MORE * num_requests / (num_requests + _MANY)
            ratio = _MARGIN * (1 + more * (guessing - usual + late / _FEW) / usual)
        else:  # what many gain together changes the more slowly
            ratio = guessing / (usual + late / (2 * _FEW + num_requests))
        doubt = 2 ** max(0.0, -self._num_saved / self._unit)
        return gain > max(0.0, num_requests * (ratio - 1)) * doubt

    def note(
        self, seconds: float, num_tokens: int, num_requests: int, *, guesses: bool, was_ahead: bool
    ) -> None:
        """Count a step that has brought so many tokens."""
        most = _FIRST_SURPRISE * self._ahead or seconds
        if was_ahead:
            self._save(_MADE_GOOD)
        elif self._ahead or self._fresh:
            self._save(num_tokens / num_requests - min(seconds, most) / self._usual)
        if guesses:
            self._guessing.note(num_tokens - num_requests, seconds, most)
        elif not was_ahead:
            self._fresh = _mixed(self._fresh, seconds, most)
        else:
            self._ahead = _mixed(self._ahead, seconds, seconds)
            self._fresh *= _FADING
            self._guessing.fade()

    def _save(self, num_steps: float) -> None:
        saved = min(self._num_saved + num_steps, _MOST_SAVED * self._unit)
        self._num_saved = max(saved, -_MOST_LOST * self._unit)


def _mixed(known: float, seconds: float, most: float) -> float:
    """With one more measurement, which is at most so much if it is the first."""
    if not known:
        return min(seconds, most)
    return known + _WEIGHT * (min(seconds, _SURPRISE * known) - known)


@dataclass(slots=True)
class _Line:
    """Seconds of steps with guesses by what they gain: more drafts take longer too."""

    gain: float = 0.0  # means
    seconds: float = 0.0
    gain_squared: float = 0.0
    product: float = 0.0

    def at(self, gain: float) -> float:
        """Of a step that gains so much; 0 before any was seen."""
        variance = self.gain_squared - self.gain**2
        slope = 0.0
        if variance > _LEAST_VARIANCE:
            slope = max(0.0, (self.product - self.gain * self.seconds) / variance)
        return self.seconds + slope * (gain - self.gain)

    def note(self, gain: float, seconds: float, most: float) -> None:
        """Count one, at most so long if it is the first."""
        is_first = not self.seconds
        seconds = min(seconds, most if is_first else _SURPRISE * self.at(gain))
        weight = 1.0 if is_first else _WEIGHT
        self.gain += weight * (gain - self.gain)
        self.seconds += weight * (seconds - self.seconds)
        self.gain_squared += weight * (gain**2 - self.gain_squared)
        self.product += weight * (gain * seconds - self.product)

    def fade(self) -> None:
        """Forget a little of how long they took."""
        self.seconds *= _FADING
        self.product *= _FADING


@dataclass(slots=True)
class _Trust:
    """What drafts make true of gains that were foreseen: they may be shorter, or not look as far.

    And what is chosen for being much is less in truth.
    """

    foreseen: float = 0.0  # of the next step with guesses; 0 where another has foreseen it
    _all_foreseen: float = _PRIOR_TOKENS
    _all_gained: float = _PRIOR_TOKENS

    @property
    def share(self) -> float:
        """How much of it may be believed."""
        return min(1.0, self._all_gained / self._all_foreseen)

    def landed(self, gained: int | None) -> None:
        """Compare a step's gain with what was foreseen; None: it had no guesses."""
        if gained is None:  # believe a little more: it may be otherwise now
            self._all_gained += _FORGIVEN * max(0.0, self._all_foreseen - self._all_gained)
        elif self.foreseen > 0:
            self._all_foreseen = _KEPT * self._all_foreseen + self.foreseen
            self._all_gained = _KEPT * self._all_gained + gained
            self.foreseen = 0.0


@dataclass(frozen=True, slots=True)
class _Pending:
    """A glimpse whose tokens may not be written yet."""

    request: Request
    first: int  # where it begins among the request's tokens
    glimpse: Glimpse


class Gains:
    """How many tokens of a glimpse are written as it says: learnt for each kind of match.

    Where the first of them is on its way already, only those behind it are gained; if it turns out
    to be another, as many as behind any token that no long match was foreseen for.
    """

    def __init__(self) -> None:
        self._pending: dict[int, _Pending] = {}  # by request: one at a time
        self._known: dict[tuple[str, int], _Held] = {}
        self._anywhere = _Held()

    def expect(
        self, requests: Sequence[Request], glimpses: Sequence[Glimpse], *, is_ahead: bool
    ) -> float:
        """How many will be gained, of all requests together.

        `is_ahead`: whether a step is running that writes one more token of each.
        """
        self._judge()
        gain = 0.0
        for request, glimpse in zip(requests, glimpses, strict=True):
            gain += min(self._of(glimpse, is_ahead=is_ahead), _room(request))
            self._remember(request, glimpse)
        return gain

    def forget_pending(self) -> None:
        """Let go of requests whose glimpses are not judged yet."""
        self._pending.clear()

    def _of(self, glimpse: Glimpse, *, is_ahead: bool) -> float:
        num_tokens = len(glimpse.token_ids)
        anywhere = self._anywhere.mean if is_ahead else 0.0
        if not num_tokens:
            return anywhere
        held = self._known.setdefault(glimpse.kind, _Held())
        if not is_ahead:
            return min(held.mean, num_tokens)
        return min(held.behind_first, num_tokens - 1) + held.share_failed * anywhere

    def _remember(self, request: Request, glimpse: Glimpse) -> None:
        if not glimpse.token_ids:
            self._anywhere.note(0)
        elif request.request_id not in self._pending:
            pending = _Pending(request, len(request.token_ids), glimpse)
            self._pending[request.request_id] = pending

    def _judge(self) -> None:
        """Look at what was written where glimpses were taken."""
        for request_id, pending in list(self._pending.items()):
            guessed = pending.glimpse.token_ids
            written = pending.request.token_ids[pending.first : pending.first + len(guessed)]
            num_held = _count_alike(guessed, written)
            is_known = num_held < len(written) or len(written) == len(guessed)
            if is_known:
                self._note(pending.glimpse.kind, num_held)
            if is_known or pending.request.is_finished:
                del self._pending[request_id]

    def _note(self, kind: tuple[str, int], num_held: int) -> None:
        self._known[kind].note(num_held)
        if kind[1] == _SHORT_MATCH:
            self._anywhere.note(num_held)


@dataclass(slots=True)
class _Held:
    """What was written as matches said; the older, the less it counts."""

    num_matches: float = _PRIOR_WEIGHT
    num_held: float = _PRIOR_WEIGHT * _PRIOR_HELD  # tokens
    num_begun: float = _PRIOR_WEIGHT / 2  # matches of which one held at least

    @property
    def mean(self) -> float:
        """Tokens of a match that hold."""
        return self.num_held / self.num_matches

    @property
    def behind_first(self) -> float:
        """Of them, those behind a match's first token."""
        return (self.num_held - self.num_begun) / self.num_matches

    @property
    def share_failed(self) -> float:
        """Of the matches, those of which nothing holds."""
        return 1 - self.num_begun / self.num_matches

    def note(self, num_held: int) -> None:
        """Count a match."""
        self.num_matches = _KEPT * self.num_matches + 1
        self.num_held = _KEPT * self.num_held + num_held
        self.num_begun = _KEPT * self.num_begun + (num_held > 0)


def _room(request: Request) -> int:
    """How many guesses it may have at most."""
    wanted = request.params.speculation.num_speculative_tokens
    num_left = max(0, request.max_tokens - request.num_output_tokens - 1)
    return num_left if wanted is None else min(wanted, num_left)


def _count_alike(guessed: Sequence[int], written: Sequence[int]) -> int:
    """How many tokens both begin with."""
    pairs = zip(guessed, written, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
