"""How many tokens each request is guessed: as many as are worth the rows that verify them.

    a      how likely the next guess of a request holds, if all before it did: from its last guesses
    n      requests of a step;  e  tokens it brings besides, forced ones;  f  guesses found of those
           that were wanted
    T(t) = n + e + f * (sum of a + a^2 + ... + a^k(a, t))      tokens of a step
    R(t) = n + e + f * (sum of k(a, t))                        its rows, about
    k(a, t) = the last k with a^k >= t                         guesses of a request
    t      of some thresholds the one with the most T / seconds(R)

A guess that is likelier to stand than one wanted elsewhere is so never left out in its favour.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from structspec.engine.cost_model import CostModel
from structspec.request import Request
from structspec.speculative_config import BatchSizeRange

# from as many as there are, where rows cost nothing, to none; close together where sure guesses
# are few or many
_THRESHOLDS = np.concatenate((np.geomspace(1e-6, 0.4, 18), 0.97 ** np.arange(29, -1, -1.0)))
_PERIOD = 16  # steps for which what was chosen is kept
_KEPT = 0.95  # of what a request's guesses showed, with each later draft of it
_KEPT_OF_ALL = 0.995
_STEP_WEIGHT = 0.1  # of a step against those before it
_PRIOR_WEIGHT = 16.0  # guesses: how much of its like a new request is believed to be
_PRIORS = ((1.0, 2.0), (9.7, 10.0))  # held of tried before anything is known; of predictions
_PROBE_TOKENS = 64  # a request that is guessed nothing is tried again every so many tokens
_SURPRISE = 3.0  # times what a step takes beside its rows: more is the machine's
_ROUNDING = 1e-9  # of logarithms
_LEAST, _MOST = 0.01, 0.99  # how likely a guess may be thought


class DraftLengths(Protocol):
    """Says how much of a step is guessed."""

    def choose(self, requests: Sequence[Request], most: int) -> Sequence[int]:
        """How many guesses each of these may have in the step that is planned, at most `most`."""

    def drafted(self, request: Request, num_held: int, num_tried: int) -> None:
        """Of a request's guesses so many were looked at, and so many of these held."""

    def landed(self, seconds: float, num_rows: int, num_found: int, num_forced: int) -> None:
        """A step without prompts took so long, with so many guesses and forced tokens."""


class TableLengths:
    """As many as a table says for the number of requests, certain and forced tokens among them."""

    def __init__(self, table: Sequence[BatchSizeRange]) -> None:
        self._table = table

    def choose(self, requests: Sequence[Request], most: int) -> Sequence[int]:
        """The same for all; beyond the table's end what its last line says."""
        ranges = self._table
        found = [num_tokens for _, last, num_tokens in ranges if len(requests) <= last]
        return [min(most, found[0] if found else ranges[-1][2])] * len(requests)

    def drafted(self, request: Request, num_held: int, num_tried: int) -> None:
        """Nothing is learnt."""

    def landed(self, seconds: float, num_rows: int, num_found: int, num_forced: int) -> None:
        """Nothing is learnt."""


@dataclass(slots=True)
class _Pool:
    """What the guesses of requests alike showed."""

    held: float
    tried: float


class AdaptiveLengths:
    """As many as bring the most tokens a second, by what held so far and what rows cost."""

    def __init__(self, cost: CostModel) -> None:
        self._cost = cost
        self._pools = [_Pool(*prior) for prior in _PRIORS]  # of requests without and with one
        self._chosen: dict[int, int] = {}  # by request
        self._threshold = 1.0  # how likely a guess must stand
        self._num_requests = 0  # for which that was found
        self._num_to_keep = 0
        self._num_wanted = 0  # guesses of the last step
        self._share_found = 0.5  # of the guesses that were wanted
        self._num_forced = 0.0  # of a step
        self._host_seconds = 0.0  # of a step, beside the model's own

    def choose(self, requests: Sequence[Request], most: int) -> Sequence[int]:
        """Fewer for those whose guesses fail, and for all where rows are dear."""
        has_changed = not 0.5 * self._num_requests <= len(requests) <= 2 * self._num_requests
        if requests and (self._num_to_keep <= 0 or has_changed):
            likely = np.array([self._likelihood(request) for request in requests])
            self._threshold = self._best_threshold(likely, most)
            self._chosen.clear()
            self._num_requests, self._num_to_keep = len(requests), _PERIOD
        self._num_to_keep -= 1
        lengths = [min(most, self._length(request)) for request in requests]
        self._num_wanted = sum(lengths)
        return [k or min(most, _is_probed(r)) for k, r in zip(lengths, requests, strict=True)]

    def drafted(self, request: Request, num_held: int, num_tried: int) -> None:
        """The older, the less they count; of the engine as of the request."""
        request.num_guesses_held = _KEPT * request.num_guesses_held + num_held
        request.num_guesses_tried = _KEPT * request.num_guesses_tried + num_tried
        pool = self._pool_of(request)
        pool.held = _KEPT_OF_ALL * pool.held + num_held
        pool.tried = _KEPT_OF_ALL * pool.tried + num_tried

    def landed(self, seconds: float, num_rows: int, num_found: int, num_forced: int) -> None:
        """Learn what a step takes beside its rows, and how often there is something to guess."""
        model_seconds = self._cost.of_step(num_rows)
        most = _SURPRISE * self._host_seconds + model_seconds
        beside = min(most, max(0.0, seconds - model_seconds))
        self._host_seconds += _STEP_WEIGHT * (beside - self._host_seconds)
        self._num_forced += _STEP_WEIGHT * (num_forced - self._num_forced)
        if self._num_wanted:
            found = min(1.0, num_found / self._num_wanted)
            self._share_found += _STEP_WEIGHT * (found - self._share_found)

    def _length(self, request: Request) -> int:
        """By the threshold; kept as long as that is."""
        length = self._chosen.get(request.request_id)
        if length is None:
            longest = math.log(self._threshold) / math.log(self._likelihood(request))
            length = self._chosen[request.request_id] = int(longest + _ROUNDING)
        return length

    def _pool_of(self, request: Request) -> _Pool:
        return self._pools[bool(request.prediction_token_ids)]

    def _likelihood(self, request: Request) -> float:
        pool = self._pool_of(request)
        prior = pool.held / pool.tried
        held = request.num_guesses_held + _PRIOR_WEIGHT * prior
        likely = held / (request.num_guesses_tried + _PRIOR_WEIGHT)
        return min(_MOST, max(_LEAST, round(likely, 2)))

    def _best_threshold(self, likely: NDArray[np.float64], most: int) -> float:
        """The one with the most tokens a second."""
        values, counts = np.unique(likely, return_counts=True)
        lengths = _lengths(values, _THRESHOLDS, most)  # [num_values, num_thresholds]
        a = values[:, None]
        gained = counts @ (a * (1 - a**lengths) / (1 - a))
        num_sure = len(likely) + self._num_forced
        tokens = num_sure + self._share_found * gained
        rows = num_sure + self._share_found * (counts @ lengths)
        # not all find something at once, and a step with more of them may need a dearer size
        share = self._share_found
        spread = np.sqrt(share * (1 - share) * (counts @ lengths**2))
        model_seconds = self._cost.seconds(np.stack((rows - spread, rows, rows + spread))).mean(0)
        rates = tokens / (model_seconds + self._host_seconds)
        return float(_THRESHOLDS[int(np.argmax(rates))])


def _lengths(
    likely: NDArray[np.float64], thresholds: NDArray[np.float64], most: int
) -> NDArray[np.float64]:
    """The last k with likely^k >= threshold, at most `most`, [num_requests, num_thresholds]."""
    longest = np.log(thresholds)[None, :] / np.log(likely)[:, None]
    return np.minimum(np.floor(longest + _ROUNDING), most)


def _is_probed(request: Request) -> bool:
    """Whether it is guessed one token in this step, though nothing is expected of it."""
    # requests that began together are not tried together: that would make one step dear
    return (request.num_output_tokens + 7 * request.request_id) % _PROBE_TOKENS == 0
