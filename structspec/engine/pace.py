"""How steps are taken: with guesses or ahead of what the host knows, masked or looked at after."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

from structspec.engine.batch import Batch, Draft, Drafting, SamplerOutput
from structspec.request import Request

_NUM_SETTLING = 4  # steps after a change of ways, which still show the way before
_NUM_STEPS = 16  # of one measurement
_FEWEST_STEPS = 4  # of one that falls behind
_ENOUGH_REQUESTS = 64  # times steps: of fewer, drafts that hold nowhere may do so further on
_ENOUGH_AGAIN = 8  # steps of a way that was measured before
_BEHIND = 0.85  # of the best way's tokens per second: no more of its steps are looked at
_NUM_OUTLIERS = 2  # slowest steps of a measurement: the machine's, not the way's
_MOST_DISTURBED = 16  # steps, one after the other, that are left out for such requests
_LOOKED_AT_EVERY = 8  # steps of the same requests
_LOSS = 0.002  # of all time, what trying one slower way again may cost
_DRAFTING_LOSS = 0.008  # of one that only drafts more: what drafts bring changes within a text
_LEAST_REST = 12.0  # a way is not tried again before so many times what its last trial took
_DOUBT = 0.9  # masks come first only where they are surely better: a hiccup decides nothing
_HOPEFUL = 0.6  # of the best way's rate: such a one is soon measured a second time
_BETTER = 1.15  # times what it was thought to be: and again, since much was new to the machine,
_FIRST = 3  # so often at most
_WEIGHT = 0.5  # of a measurement against those before it


class Way(NamedTuple):
    """One way of stepping."""

    drafting: Drafting
    masks_first: bool  # else tokens are drawn without a mask, and the grammar is asked afterwards


_ALL_WAYS = [Way(*choices) for choices in product(sorted(Drafting, reverse=True), (False, True))]


# constrained: none 0, up to half 1, more 2; speculative, counted alike; whether any has a wide row
_Kind = tuple[int, int, bool]


class Pace:
    """What pays is tried: the tokens per second of each way are measured, in turns.

    Guessing writes more tokens a step, running ahead hides the host's work. How many of a request's
    guesses hold is not known before its step is read; where many requests guess, or may as soon as
    their last token is known, the next step waits for that: to leave them out would split the batch
    in two. Where nothing is guessed, the next step is launched first, and draws no drafts but
    certain ones, or none: to look for them takes the host's time too.

    Drawing before looking saves the masks, and gives away the steps of tokens that are refused.

    The machine is not always as fast: where the steps of the way at hand take longer than they did,
    those of all others are thought to, and a way that lost its place is soon tried again. Any other
    slower way is once what its last trial has lost is a small share of the time since; one that
    falls behind while it is tried is left at once.

    What was measured is remembered by how many requests there were, how many of them had a grammar,
    how many might draft, and whether any had a wide row, with which less is refused. Work that
    changes to and fro, or has pauses, may leave no time for a whole measurement: one that was
    broken off is gone on with, and a few steps of another kind are left out. None of it changes
    what is written.
    """

    def __init__(
        self,
        max_share_aside: float = 0.25,
        clock: Callable[[], float] = time.perf_counter,
        *,
        is_optimistic: bool = False,
        is_told: bool = False,
        fastest: Callable[[int], float] | None = None,
    ) -> None:
        """Only with `is_optimistic` may tokens be drawn without a mask.

        `fastest`: seconds below which no step of so many rows is. What could not be the best even
        then is not tried: a short text may be over before all ways have been.
        With `is_told` how much is guessed was said by the user, and nothing else is tried.
        """
        self._max_share_aside = max_share_aside
        self._clock = clock
        self._is_optimistic = is_optimistic
        self.is_told = is_told
        self._fastest = fastest
        self._records: dict[tuple[int, _Kind], _Records] = {}  # by the bits of their number
        self._first = Way(Drafting.GUESSES, not is_optimistic)
        self._last: float | None = None  # when the last step was read, if it was just before
        self._worked = 0.0  # seconds without pauses
        self._num_to_settle = _NUM_SETTLING  # steps that are not to be counted
        self._num_other = 0  # steps of another kind, one after the other
        self._num_disturbed = 0  # steps in which requests began or ended, one after the other
        self._is_disturbed = False
        self._last_requests: list[Request] = []
        self._num_seen_alike = 0  # steps with these
        self._last_look: tuple[Sequence[Way], _Kind] = ((), (0, 0, False))
        self._num_requests, self._kind = 0, (0, 0, False)
        self._known = _Records(self._first)

    def told(self) -> Pace:
        """Another one, that knows nothing yet and guesses as it is told."""
        return Pace(
            self._max_share_aside,
            self._clock,
            is_optimistic=self._is_optimistic,
            is_told=True,
            fastest=self._fastest,
        )

    @property
    def drafting(self) -> Drafting:
        """What the next step may draft."""
        return self._known.measured.way.drafting

    @property
    def masks_first(self) -> bool:
        """Whether the next step's constrained rows are to be masked before they are sampled."""
        return self._known.measured.way.masks_first

    def must_wait(self, batch: Batch, draft: Draft) -> bool:
        """Whether this step should be read before the next one is planned."""
        num_aside = max(draft.num_guessing, draft.num_hopeful)
        return num_aside > self._max_share_aside * len(batch.requests)

    def landed(self, batch: Batch, draft: Draft, output: SamplerOutput) -> None:
        """Count a step that was read."""
        now = self._clock()
        seconds, self._last = 0.0 if self._last is None else now - self._last, now
        self._worked += seconds
        ways, kind = self._look_at(batch)
        if len(ways) == 1:  # they say nothing of others, nor others of them
            return
        num_requests = len(batch.requests)
        has_changed = not 0.5 * self._num_requests <= num_requests <= 2 * self._num_requests
        self._num_other = 0 if kind == self._kind else self._num_other + 1
        if has_changed or self._num_other > _NUM_SETTLING:
            self._turn_to(num_requests, kind)
        measured = self._known.measured
        if self._num_other or self._is_disturbed:
            return
        if measured.way not in ways:
            self._begin(self._known.next(ways, self._worked))
        elif self._num_to_settle:
            self._num_to_settle -= 1
        else:
            measured.seconds.append(seconds)
            measured.num_tokens += _count_standing(batch, draft, output)
            measured.num_certain += sum(draft.num_certain)
            self._judge(measured, ways)

    def _look_at(self, batch: Batch) -> tuple[Sequence[Way], _Kind]:
        """The ways that differ for a step's requests, and of what kind these are.

        It is also seen whether requests begin or end, which takes as long in any way, unless they
        do all the time. The step behind such a one was launched before it was read.
        """
        requests = [scheduled.request for scheduled in batch.requests]
        has_changed = requests != self._last_requests
        is_disturbed = has_changed or batch.num_tokens > len(requests)
        self._num_disturbed = self._num_disturbed + 1 if is_disturbed else 0
        self._is_disturbed = 0 < self._num_disturbed <= _MOST_DISTURBED
        if self._is_disturbed:
            self._settle(1)
        self._num_seen_alike += 1
        if has_changed or self._num_seen_alike >= _LOOKED_AT_EVERY:  # they may have got a grammar
            self._last_requests, self._num_seen_alike = requests, 0
            self._last_look = self._ways(batch), _kind_of(batch)
        return self._last_look

    def paused(self) -> None:
        """Nothing was there to do for a while: time that no way of stepping is to blame for."""
        self._last = None
        self._settle(1)

    def _ways(self, batch: Batch) -> Sequence[Way]:
        """Those that differ for these requests; what makes no difference is left on."""
        may_guess = may_force = may_look_after = False
        for scheduled in batch.requests:
            request = scheduled.request
            has_matcher = request.matcher is not None
            may_guess |= request.params.speculative and not self.is_told
            may_force |= request.params.speculative and has_matcher
            may_look_after |= has_matcher and not request.params.is_masked_first
            if may_force and may_look_after:
                break
        least = Drafting.NOTHING if may_force else Drafting.CERTAIN
        may_choose = self._is_optimistic and may_look_after
        return [
            way
            for way in _ALL_WAYS
            if (way.drafting >= least if may_guess else way.drafting is Drafting.GUESSES)
            and (may_choose or way.masks_first is not self._is_optimistic)
        ]

    def _turn_to(self, num_requests: int, kind: _Kind) -> None:
        self._num_requests, self._kind, self._num_other = num_requests, kind, 0
        way, key = self._known.measured.way, (num_requests.bit_length(), kind)
        self._known = self._records.setdefault(key, _Records(self._first))
        self._settle(1 if self._known.measured.way == way else _NUM_SETTLING)

    def _begin(self, way: Way) -> None:
        self._known.measured = _Measurement(way)
        self._settle(_NUM_SETTLING)

    def _settle(self, num_steps: int) -> None:
        """Count no more steps before so many have passed."""
        self._num_to_settle = max(self._num_to_settle, num_steps)

    def _judge(self, measured: _Measurement, ways: Sequence[Way]) -> None:
        """Go on with the way at hand, or note what it has brought and choose the next."""
        num_counted, known = len(measured.seconds), self._known
        if num_counted < _FEWEST_STEPS:
            return
        usual = max(_usual(measured.seconds), 1e-9)
        # at least 1: what brings nothing is slow, and still has a share of others' rates
        steps = _Steps(max(measured.num_tokens, 1) / num_counted, usual)
        was_measured = known.knows(measured.way)
        has_enough = num_counted * self._num_requests >= _ENOUGH_REQUESTS
        has_enough |= was_measured and num_counted >= _ENOUGH_AGAIN
        is_enough = has_enough and not was_measured  # a first look at all of them, then the best
        if (
            num_counted >= _NUM_STEPS
            or is_enough
            or known.is_behind(measured.way, steps.rate, ways, has_enough=has_enough)
        ):
            known.note(measured.way, steps, self._worked, usual * (_NUM_SETTLING + num_counted))
            if measured.way.drafting is Drafting.GUESSES:
                known.certain_per_step = measured.num_certain / num_counted
            self._begin(known.next(self._promising(ways), self._worked))

    def _promising(self, ways: Sequence[Way]) -> Sequence[Way]:
        """Those that might be the best; what guesses bring is not bounded."""
        best = self._known.best(ways)
        if self._fastest is None or best is None or self._num_requests == 0:
            return ways
        least = self._fastest(self._num_requests)
        most = {
            Drafting.NOTHING: self._num_requests / least,
            Drafting.CERTAIN: (self._num_requests + self._known.certain_per_step) / least,
        }
        best_rate = self._known.rate(best)
        return [
            way for way in ways if way == best or most.get(way.drafting, best_rate) >= best_rate
        ]


def _kind_of(batch: Batch) -> _Kind:
    requests = [scheduled.request for scheduled in batch.requests]
    constrained = [request for request in requests if request.matcher is not None]
    num_speculative = sum(request.params.speculative for request in requests)
    return (
        -(-2 * len(constrained) // len(requests)),
        -(-2 * num_speculative // len(requests)),
        any(request.wide_row is not None for request in constrained),
    )


def _count_standing(batch: Batch, draft: Draft, output: SamplerOutput) -> int:
    """How many tokens a step has brought, without those that went on from a refused one."""
    num_tokens = sum(map(len, output.token_ids)) + sum(draft.num_certain)
    stale = [index for index, scheduled in enumerate(batch.requests) if scheduled.is_stale]
    return num_tokens - sum(
        len(output.token_ids[index]) + draft.num_certain[index]
        for index in stale
        if index not in output.diverged
    )


def _usual(seconds: Sequence[float]) -> float:
    """The mean without the slowest, as far as there are many."""
    num_kept = len(seconds) - min(_NUM_OUTLIERS, len(seconds) // 4)
    return sum(sorted(seconds)[:num_kept]) / num_kept


@dataclass(slots=True)
class _Measurement:
    """What the steps of one way have brought so far, without those in which it settled."""

    way: Way
    seconds: list[float] = field(default_factory=list)  # of each step
    num_tokens: int = 0
    num_certain: int = 0  # drafts that no other token could stand in place of


class _Steps(NamedTuple):
    """What one step of a way brings, and takes."""

    num_tokens: float
    seconds: float

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.num_tokens / self.seconds


class _Records:
    """What was measured of each way, and what is being measured.

    The machine is not always as fast, and all ways are slower together: seconds are kept as they
    would be now, by those of the best way. Its steps are measured before and behind each trial of
    another, which is judged by what they took there.
    """

    def __init__(self, first: Way) -> None:
        self.measured = _Measurement(first)
        self.certain_per_step = 0.0  # such drafts, where guesses are made too
        self._steps: dict[Way, _Steps] = {}
        self._tries: dict[Way, tuple[float, float]] = {}  # seconds worked at its end, and in it
        self._num_measured: Counter[Way] = Counter()
        self._is_settled: dict[Way, bool] = {}  # else it is soon measured again
        self._best: Way | None = None
        self._before: float | None = None  # seconds of the best way, as they were measured last
        self._trial: tuple[Way, _Steps] | None = None  # of another, since

    def note(self, way: Way, steps: _Steps, now: float, seconds: float) -> None:
        """Count a trial that took so long."""
        self._tries[way] = now, seconds
        if way not in self._steps:
            self._note(way, steps)
        elif way != self._best:
            self._trial = way, steps
        else:
            before, trial = self._before, self._trial
            self._before, self._trial = steps.seconds, None
            self._slow_down(steps.seconds / self._steps[way].seconds)
            self._note(way, steps)
            if before is not None and trial is not None:
                other, (num_tokens, seconds) = trial
                beside = (before + steps.seconds) / 2
                self._note(other, _Steps(num_tokens, seconds * steps.seconds / beside))

    def _note(self, way: Way, steps: _Steps) -> None:
        """Count what its steps bring and take now, half against what was known."""
        known = self._steps.get(way, steps)
        num_measured = self._num_measured[way] = self._num_measured[way] + 1
        is_better = steps.rate > _BETTER * known.rate
        self._is_settled[way] = num_measured > 1 and not (is_better and num_measured <= _FIRST)
        self._steps[way] = _Steps(
            *(old + _WEIGHT * (new - old) for old, new in zip(known, steps, strict=True))
        )

    def _slow_down(self, times: float) -> None:
        """Think of all steps that they take so much longer."""
        for way, (num_tokens, seconds) in self._steps.items():
            self._steps[way] = _Steps(num_tokens, seconds * times)

    def rate(self, way: Way) -> float:
        """The tokens per second of a way that was measured."""
        return self._steps[way].rate

    def knows(self, way: Way) -> bool:
        """Whether it was measured."""
        return way in self._steps

    def is_behind(self, way: Way, rate: float, ways: Sequence[Way], *, has_enough: bool) -> bool:
        """Whether a way is so far behind the best that no more of it need be seen.

        Of other drafts too few steps, or one place of a text, say nothing.
        """
        best = self.best([other for other in ways if other != way])
        if best is None or not (has_enough or way.drafting == best.drafting):
            return False
        return rate < _BEHIND * self.rate(best)

    def best(self, ways: Sequence[Way]) -> Way | None:
        """The fastest that was measured, if any was."""
        measured = [way for way in ways if way in self._steps]
        return max(measured, key=self._trusted, default=None)

    def _trusted(self, way: Way) -> float:
        return self.rate(way) * (_DOUBT if way.masks_first else 1)

    def next(self, ways: Sequence[Way], now: float) -> Way:
        """One never measured that is like the best, else one whose time has come, else the best."""
        best = self.best(ways)
        if best is None:
            return ways[0]
        unknown = [way for way in ways if way not in self._steps]
        for way in unknown:  # how to draft is settled first, then when to mask
            if way.masks_first == best.masks_first:
                return way
        for way in unknown:
            if way.drafting == best.drafting:
                return way
        if best != self._best:
            self._best = best
            self._before = self._trial = None
        if self._before is None or self._trial is not None:
            return best
        return next((way for way in ways if way != best and self._is_due(way, best, now)), best)

    def _is_due(self, way: Way, best: Way, now: float) -> bool:
        if way not in self._steps:
            return False
        ended, seconds = self._tries[way]
        drafts_more = way.drafting > best.drafting and way.masks_first == best.masks_first
        allowed = _DRAFTING_LOSS if drafts_more else _LOSS
        share = self.rate(way) / self.rate(best)
        if not self._is_settled[way] and share > _HOPEFUL:
            return now >= ended + _LEAST_REST * seconds
        lost = seconds * (1 - share)
        return now >= ended + max(_LEAST_REST * seconds, lost / allowed)
