"""How steps are taken: with guesses or ahead of what the host knows, masked or looked at after."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from structspec.engine.batch import Batch, Draft, Drafting, SamplerOutput
from structspec.engine.ways import ALL_WAYS, Kind, Measurement, Records, Steps, Way, usual_of
from structspec.request import Request

_NUM_SETTLING = 4  # steps after a change of ways, which still show the way before
_NUM_STEPS = 16  # of one measurement
_FEWEST_STEPS = 4  # of one that falls behind
_ENOUGH_REQUESTS = 64  # times steps: of fewer, drafts that hold nowhere may do so further on
_ENOUGH_AGAIN = 8  # steps of a way that was measured before
_MOST_DISTURBED = 16  # steps that are left out for such requests, while nothing is counted
_LOOKED_AT_EVERY = 8  # steps of the same requests


class Pace:
    """What pays is tried: the tokens per second of each way are measured, in turns.

    Guessing writes more tokens a step, running ahead hides the host's work. How many of a request's
    guesses hold is not known before its step is read; where many requests guess, or may as soon as
    their last token is known, the next step waits for that: to leave them out would split the batch
    in two. Where nothing is guessed, the next step is launched first, and draws no drafts but
    certain ones, or none: to look for them takes the host's time too.

    Drawing before looking saves the masks, and gives away the steps of tokens that are refused.

    The machine is not always as fast: what a slower way brings is judged by what the best way's
    steps take before its trial and behind it. It is tried again once what its last trial has lost
    is a small share of the time since, and left at once where it falls behind.

    Steps in which requests begin or end take as long in any way: they are left out, and those
    behind them, unless there are hardly any others.

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
        self._records: dict[tuple[int, Kind], Records] = {}  # by the bits of their number
        self._first = Way(Drafting.GUESSES, not is_optimistic)
        self._last: float | None = None  # when the last step was read, if it was just before
        self._worked = 0.0  # seconds without pauses
        self._num_to_settle = _NUM_SETTLING  # steps that are not to be counted
        self._num_other = 0  # steps of another kind, one after the other
        self._num_disturbed = 0  # steps in which requests began or ended, never two calm between
        self._num_calm = 0  # of the others, one after the other
        self._is_disturbed = False
        self._last_requests: list[Request] = []
        self._num_seen_alike = 0  # steps with these
        self._last_look: tuple[Sequence[Way], Kind] = ((), (0, 0, False))
        self._num_requests, self._kind = 0, (0, 0, False)
        self._known = Records(self._first)

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

    def _look_at(self, batch: Batch) -> tuple[Sequence[Way], Kind]:
        """The ways that differ for a step's requests, and of what kind these are.

        It is also seen whether requests begin or end, which takes as long in any way, unless they
        do all the time. The step behind such a one was launched before it was read: where no two
        steps without them follow each other none would ever be counted.
        """
        requests = [scheduled.request for scheduled in batch.requests]
        has_changed = requests != self._last_requests
        is_disturbed = has_changed or batch.num_tokens > len(requests)
        self._num_calm = 0 if is_disturbed else self._num_calm + 1
        self._num_disturbed = 0 if self._num_calm > 1 else self._num_disturbed + is_disturbed
        self._is_disturbed = is_disturbed and self._num_disturbed <= _MOST_DISTURBED
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
        self._last_requests = []  # they may be finished
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
            for way in ALL_WAYS
            if (way.drafting >= least if may_guess else way.drafting is Drafting.GUESSES)
            and (may_choose or way.masks_first is not self._is_optimistic)
        ]

    def _turn_to(self, num_requests: int, kind: Kind) -> None:
        self._num_requests, self._kind, self._num_other = num_requests, kind, 0
        way, key = self._known.measured.way, (num_requests.bit_length(), kind)
        self._known = self._records.setdefault(key, Records(self._first))
        self._settle(1 if self._known.measured.way == way else _NUM_SETTLING)

    def _begin(self, way: Way) -> None:
        self._known.measured = Measurement(way)
        self._settle(_NUM_SETTLING)

    def _settle(self, num_steps: int) -> None:
        """Count no more steps before so many have passed."""
        self._num_to_settle = max(self._num_to_settle, num_steps)

    def _judge(self, measured: Measurement, ways: Sequence[Way]) -> None:
        """Go on with the way at hand, or note what it has brought and choose the next."""
        num_counted, known = len(measured.seconds), self._known
        if num_counted < _FEWEST_STEPS:
            return
        usual = max(usual_of(measured.seconds), 1e-9)
        # at least 1: what brings nothing is slow, and still has a share of others' rates
        steps = Steps(max(measured.num_tokens, 1) / num_counted, usual)
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


def _kind_of(batch: Batch) -> Kind:
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
