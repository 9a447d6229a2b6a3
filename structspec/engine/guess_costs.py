"""What steps with guesses cost, and whether they have been worth it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

_MARGIN = 1.03
_MORE = 0.5  # for many: whose texts then end one by one, each with another's prompt behind it
_MANY = 16  # requests, for which it is half of that
_WEIGHT = 0.1  # of what was measured against that before it
_SURPRISE = 3.0  # times what something takes: more is the machine's
_LOST_SURPRISE = 2.0  # times that: more is not counted as lost
_FIRST_SURPRISE = 10.0  # times what a step launched ahead takes: of the first of another kind
_FEW = 2  # steps with guesses for which others are launched late behind them
_FADING = 0.9995  # of what others take, with each step launched ahead: a bad moment is forgotten
_FADING_FAR = 0.995  # where that is more than the first may be: seldom it is true
_LEAST_VARIANCE = 0.5  # of what steps have gained, for it to say more than their mean
_MADE_GOOD = 0.01  # of a step that guesses have lost, with each that is launched ahead
_FEW_LOST = 8.0  # steps, all requests together: what the guesses of few bring varies
_MOST_SAVED = 6.0  # times that are remembered,
_MOST_LOST = 20.0


class GuessCosts:
    """Seconds of steps, as far as they were seen, and whether guesses have been worth theirs."""

    def __init__(self, num_requests: int) -> None:
        self._ahead = 0.0
        self._fresh = 0.0
        self._guessing = _Line()
        self._unit = max(1.0, _FEW_LOST / num_requests)  # steps that are few to lose
        self._num_saved = 0.0  # steps

    def like(self, other: GuessCosts) -> GuessCosts:
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
        gain, most = num_tokens - num_requests, seconds
        if self._ahead or self._fresh:
            most = _FIRST_SURPRISE * self._usual
        if was_ahead:
            self._save(_MADE_GOOD)
        elif known := self._guessing.at(gain) if guesses else self._fresh:
            # of the first of a kind much is new to the machine: it has lost nothing
            lasted = min(seconds, _LOST_SURPRISE * known)
            self._save(num_tokens / num_requests - lasted / self._usual)
        if guesses:
            self._guessing.note(gain, seconds, most)
        elif not was_ahead:
            self._fresh = _mixed(self._fresh, seconds, most)
        else:
            is_first = not self._ahead
            self._ahead = _mixed(self._ahead, seconds, seconds)
            self._fade(_FIRST_SURPRISE * self._ahead if is_first else math.inf)

    def _fade(self, most: float) -> None:
        """Forget a little of what others take, and all of that beyond `most`."""
        if self._fresh > self._ahead:  # what is less would have to be learnt from nothing
            self._fresh = min(most, self._fresh * self._fading(self._fresh))
        if (guessing := self._guessing.seconds) > self._ahead:
            self._guessing.fade(min(most / guessing, self._fading(guessing)))

    def _fading(self, seconds: float) -> float:
        return _FADING if seconds <= _FIRST_SURPRISE * self._ahead else _FADING_FAR

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
        return max(0.0, self.seconds + slope * (gain - self.gain))

    def note(self, gain: float, seconds: float, most: float) -> None:
        """Count one, at most so long if it is the first."""
        is_first = not self.seconds
        if not is_first:  # a line may be so steep that steps without a gain would take no time
            most = _SURPRISE * max(self.seconds, self.at(gain))
        seconds = min(seconds, most)
        weight = 1.0 if is_first else _WEIGHT
        self.gain += weight * (gain - self.gain)
        self.seconds += weight * (seconds - self.seconds)
        self.gain_squared += weight * (gain**2 - self.gain_squared)
        self.product += weight * (gain * seconds - self.product)

    def fade(self, share: float) -> None:
        """Think that they took but this share of it."""
        self.seconds *= share
        self.product *= share
