"""Whether steps should guess and be waited for, or run ahead of what the host knows."""

from __future__ import annotations

import time
from collections.abc import Callable

from structspec.engine.batch import Batch, Draft, SamplerOutput

_NUM_STEPS = 16  # of one measurement
_NUM_MEASUREMENTS = 12  # with the better way, before the other is tried again
_WEIGHT = 0.5  # of a measurement against those before it


class Pace:
    """Guessing writes more tokens a step, running ahead hides the host's work: what pays is tried.

    How many of a request's guesses hold is not known before its step is read. Where many requests
    guess, or may as soon as their last token is known, the next step waits for that: to leave them
    out would split the batch in two. Where nothing is guessed, the next step is launched first, and
    draws no drafts but certain ones. The
    tokens per second of both are measured in turns, the slower way once in a while, and again when
    the number of requests has changed much. None of it changes what is written.
    """

    def __init__(
        self, max_share_aside: float = 0.25, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._max_share_aside = max_share_aside
        self._clock = clock
        self._forget(0)

    @property
    def allows_guesses(self) -> bool:
        """Whether the next step may guess."""
        return self._guesses

    def must_wait(self, batch: Batch, draft: Draft) -> bool:
        """Whether this step should be read before the next one is planned."""
        num_aside = max(draft.num_guessing, draft.num_hopeful)
        return num_aside > self._max_share_aside * len(batch.requests)

    def landed(self, batch: Batch, draft: Draft, output: SamplerOutput) -> None:
        """Count a step that was read."""
        num_requests = len(batch.requests)
        if not 0.5 * self._num_requests <= num_requests <= 2 * self._num_requests:
            self._forget(num_requests)
        if not any(scheduled.request.params.speculative for scheduled in batch.requests):
            return
        self._num_steps += 1
        self._num_tokens += sum(map(len, output.token_ids)) + sum(draft.num_certain)
        if self._num_steps == _NUM_STEPS:
            self._compare()

    def paused(self) -> None:
        """Nothing was there to do for a while: time that no way of stepping is to blame for."""
        self._begin(guesses=self._guesses)

    def _forget(self, num_requests: int) -> None:
        self._num_requests = num_requests
        self._rates: dict[bool, float] = {}  # tokens per second, with guesses and without
        self._num_measured = 0  # since the slower way was tried
        self._begin(guesses=True)

    def _begin(self, *, guesses: bool) -> None:
        self._guesses = guesses
        self._num_steps = self._num_tokens = 0
        self._start = self._clock()

    def _compare(self) -> None:
        rate = self._num_tokens / max(self._clock() - self._start, 1e-9)
        known = self._rates.get(self._guesses, rate)
        self._rates[self._guesses] = known + _WEIGHT * (rate - known)
        self._num_measured += 1
        if (not self._guesses) not in self._rates:
            self._begin(guesses=not self._guesses)
            return
        better = self._rates[True] >= self._rates[False]
        if self._num_measured >= _NUM_MEASUREMENTS:
            self._num_measured = 0
            better = not better
        self._begin(guesses=better)
