"""Ways of stepping: what was measured of each, and which is to be measured next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

from structspec.engine.batch import Drafting

_LOSS = 0.002  # of all time, what trying one slower way again may cost
_DRAFTING_LOSS = 0.008  # of one that only drafts more: what drafts bring changes within a text
_LEAST_REST = 12.0  # a way is not tried again before so many times what its last trial took
_DOUBT = 0.9  # masks come first only where they are surely better: a hiccup decides nothing
_HOPEFUL = 0.6  # of the best way's rate: such a one is soon measured a second time
_BETTER = 1.15  # times what it was thought to be: and again, since much was new to the machine,
_FIRST = 3  # so often at most
_WEIGHT = 0.5  # of a measurement against those before it
_NUM_OUTLIERS = 2  # slowest steps of a measurement: the machine's, not the way's
_SURPRISE = 4.0  # times their median: more is the machine's too
_BEHIND = 0.85  # of the best way's tokens per second: no more of its steps are looked at


class Way(NamedTuple):
    """One way of stepping."""

    drafting: Drafting
    masks_first: bool  # else tokens are drawn without a mask, and the grammar is asked afterwards


ALL_WAYS = [Way(*choices) for choices in product(sorted(Drafting, reverse=True), (False, True))]


# constrained: none 0, up to half 1, more 2; speculative, counted alike; whether any has a wide row
Kind = tuple[int, int, bool]


def usual_of(seconds: Sequence[float]) -> float:
    """The mean without the slowest, as far as there are many; of few, several may be far off."""
    ordered = sorted(seconds)
    most = _SURPRISE * ordered[(len(ordered) - 1) // 2]
    num_kept = len(ordered) - min(_NUM_OUTLIERS, len(ordered) // 4)
    return sum(min(one, most) for one in ordered[:num_kept]) / num_kept


@dataclass(slots=True)
class Measurement:
    """What the steps of one way have brought so far, without those in which it settled."""

    way: Way
    seconds: list[float] = field(default_factory=list)  # of each step
    num_tokens: int = 0
    num_certain: int = 0  # drafts that no other token could stand in place of


class Steps(NamedTuple):
    """What one step of a way brings, and takes."""

    num_tokens: float
    seconds: float

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.num_tokens / self.seconds


class Records:
    """What was measured of each way, and what is being measured.

    The machine is not always as fast, and all ways are slower together: seconds are kept as they
    would be now, by those of the best way. Its steps are measured before and behind each trial of
    another, which is judged by what they took there.
    """

    def __init__(self, first: Way) -> None:
        self.measured = Measurement(first)
        self.certain_per_step = 0.0  # such drafts, where guesses are made too
        self._steps: dict[Way, Steps] = {}
        self._tries: dict[Way, tuple[float, float]] = {}  # seconds worked at its end, and in it
        self._num_measured: Counter[Way] = Counter()
        self._is_settled: dict[Way, bool] = {}  # else it is soon measured again
        self._best: Way | None = None
        self._before: float | None = None  # seconds of the best way, as they were measured last
        self._trial: tuple[Way, Steps] | None = None  # of another, since

    def note(self, way: Way, steps: Steps, now: float, seconds: float) -> None:
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
                self._note(other, Steps(num_tokens, seconds * steps.seconds / beside))

    def _note(self, way: Way, steps: Steps) -> None:
        """Count what its steps bring and take now, half against what was known."""
        known = self._steps.get(way, steps)
        num_measured = self._num_measured[way] = self._num_measured[way] + 1
        is_better = steps.rate > _BETTER * known.rate
        self._is_settled[way] = num_measured > 1 and not (is_better and num_measured <= _FIRST)
        self._steps[way] = Steps(
            *(old + _WEIGHT * (new - old) for old, new in zip(known, steps, strict=True))
        )

    def _slow_down(self, times: float) -> None:
        """Think of all steps that they take so much longer."""
        for way, (num_tokens, seconds) in self._steps.items():
            self._steps[way] = Steps(num_tokens, seconds * times)

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
