"""How steps are taken: with guesses or ahead of what the host knows, masked or looked at after."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import product
from typing import NamedTuple

from structspec.engine.batch import Batch, Draft, SamplerOutput

_NUM_STEPS = 16  # of one measurement
_REST = 40.0  # a way is not tried again before so many times what its last measurement took
_WEIGHT = 0.5  # of a measurement against those before it


class Way(NamedTuple):
    """One way of stepping."""

    guesses: bool  # drafts may be wrong
    masks_first: bool  # else tokens are drawn without a mask, and the grammar is asked afterwards


_ALL_WAYS = [Way(*choices) for choices in product((True, False), (False, True))]


class Pace:
    """What pays is tried: the tokens per second of each way are measured, in turns.

    Guessing writes more tokens a step, running ahead hides the host's work. How many of a request's
    guesses hold is not known before its step is read; where many requests guess, or may as soon as
    their last token is known, the next step waits for that: to leave them out would split the batch
    in two. Where nothing is guessed, the next step is launched first, and draws no drafts but
    certain ones.

    Drawing before looking saves the masks, and gives away the steps of tokens that are refused.

    The slower ways are tried once in a while, and all are measured for themselves where the number
    of requests has changed much; what was measured at a number is remembered. None of it changes
    what is written.
    """

    def __init__(
        self,
        max_share_aside: float = 0.25,
        clock: Callable[[], float] = time.perf_counter,
        *,
        is_optimistic: bool = False,
    ) -> None:
        """Only with `is_optimistic` may tokens be drawn without a mask."""
        self._max_share_aside = max_share_aside
        self._clock = clock
        self._is_optimistic = is_optimistic
        self._records: dict[int, _Records] = {}  # by the number of bits of a number of requests
        self._turn_to(0)

    @property
    def allows_guesses(self) -> bool:
        """Whether the next step may guess."""
        return self._way.guesses

    @property
    def masks_first(self) -> bool:
        """Whether the next step's constrained rows are to be masked before they are sampled."""
        return self._way.masks_first

    def must_wait(self, batch: Batch, draft: Draft) -> bool:
        """Whether this step should be read before the next one is planned."""
        num_aside = max(draft.num_guessing, draft.num_hopeful)
        return num_aside > self._max_share_aside * len(batch.requests)

    def landed(self, batch: Batch, draft: Draft, output: SamplerOutput) -> None:
        """Count a step that was read."""
        num_requests = len(batch.requests)
        if not 0.5 * self._num_requests <= num_requests <= 2 * self._num_requests:
            self._turn_to(num_requests)
        ways = self._ways(batch)
        if len(ways) == 1:
            self._begin(ways[0])
            return
        self._num_steps += 1
        self._num_tokens += sum(map(len, output.token_ids)) + sum(draft.num_certain)
        if self._num_steps >= _NUM_STEPS or self._way not in ways:
            self._compare(ways)

    def paused(self) -> None:
        """Nothing was there to do for a while: time that no way of stepping is to blame for."""
        self._begin(self._way)

    def _ways(self, batch: Batch) -> Sequence[Way]:
        """Those that differ for these requests; what makes no difference is left on."""
        requests = [scheduled.request for scheduled in batch.requests]
        may_guess = any(request.params.speculative for request in requests)
        may_look_after = self._is_optimistic and any(
            request.matcher is not None and not request.params.is_filtered for request in requests
        )
        return [
            way
            for way in _ALL_WAYS
            if (may_guess or way.guesses)
            and (may_look_after or way.masks_first is not self._is_optimistic)
        ]

    def _turn_to(self, num_requests: int) -> None:
        self._num_requests = num_requests
        self._known = self._records.setdefault(num_requests.bit_length(), _Records())
        self._begin(self._known.best(_ALL_WAYS) or Way(True, not self._is_optimistic))

    def _begin(self, way: Way) -> None:
        self._way = way
        self._num_steps = self._num_tokens = 0
        self._start = self._clock()

    def _compare(self, ways: Sequence[Way]) -> None:
        now = self._clock()
        if self._num_steps >= _NUM_STEPS:
            self._known.note(self._way, self._num_tokens, self._start, now)
        self._begin(self._known.next(ways, now))


class _Records:
    """What was measured of each way."""

    def __init__(self) -> None:
        self._rates: dict[Way, float] = {}  # tokens per second
        self._due: dict[Way, float] = {}  # when it is to be tried again

    def note(self, way: Way, num_tokens: int, start: float, end: float) -> None:
        """Count a measurement, half against those before."""
        rate = num_tokens / max(end - start, 1e-9)
        known = self._rates.get(way, rate)
        self._rates[way] = known + _WEIGHT * (rate - known)
        self._due[way] = end + _REST * (end - start)

    def best(self, ways: Sequence[Way]) -> Way | None:
        """The fastest that was measured, if any was."""
        return max((way for way in ways if way in self._rates), key=self._rates.get, default=None)  # type: ignore[arg-type]

    def next(self, ways: Sequence[Way], now: float) -> Way:
        """One never measured, else one whose time has come, else the best."""
        for way in ways:
            if way not in self._rates:
                return way
        best = self.best(ways)
        assert best is not None
        return next((way for way in ways if way != best and self._due[way] <= now), best)
