"""What an engine says of itself every few seconds while it is busy."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from itertools import zip_longest

from structspec.metrics import Metrics

logger = logging.getLogger("structspec")


class LogLine:
    """Logs what happened in the last `interval_s` seconds, once they are over; 0 is never.

    Nobody is told of seconds in which there was nothing to do.
    """

    def __init__(
        self,
        snapshot: Callable[[], Metrics],
        interval_s: float,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._snapshot = snapshot
        self._interval_s = interval_s if interval_s > 0 else math.inf
        self._clock = clock
        self._before: Metrics | None = None
        self._ticked_at = -math.inf
        self._next = math.inf

    def tick(self) -> None:
        """To be called after each step; looks at nothing but the clock until it is time."""
        now = self._clock()
        is_rested = now - self._ticked_at > self._interval_s
        self._ticked_at = now
        if not (is_rested or now >= self._next) or not logger.isEnabledFor(logging.INFO):
            return
        before, self._before = self._before, self._snapshot()
        self._next = now + self._interval_s
        if before is not None and not is_rested:
            logger.info("%s", describe(before, self._before))


def describe(before: Metrics, now: Metrics) -> str:
    """What happened between two snapshots, in one line."""
    rates, spec = now.since(before), now.spec_decode
    parts = [
        f"{rates.prompt:.1f} prompt and {rates.generation:.1f} generated tokens/s",
        f"{now.num_requests_running} running, {now.num_requests_waiting} waiting",
        f"KV cache {now.kv_cache_usage_perc:.1%} in use",
    ]
    num_drafts = spec.num_drafts - before.spec_decode.num_drafts
    if num_drafts > 0:
        drafted = spec.num_draft_tokens - before.spec_decode.num_draft_tokens
        accepted = spec.num_accepted_tokens - before.spec_decode.num_accepted_tokens
        parts += [
            f"drafts: {rates.accepted:.1f} of {rates.drafted:.1f} tokens/s accepted"
            f" ({accepted / max(1, drafted):.1%})",
            f"mean acceptance length {1 + accepted / num_drafts:.2f}",
            f"by position {_rates_by_position(before, now)}",
        ]
    return "; ".join(parts)


_NUM_POSITIONS = 8  # more would fill the line


def _rates_by_position(before: Metrics, now: Metrics) -> str:
    first, last = before.spec_decode, now.spec_decode
    accepted = _since(first.num_accepted_tokens_per_pos, last.num_accepted_tokens_per_pos)
    drafted = _since(first.num_draft_tokens_per_pos, last.num_draft_tokens_per_pos)
    pairs = zip_longest(accepted[:_NUM_POSITIONS], drafted[:_NUM_POSITIONS], fillvalue=0)
    return " ".join(f"{held / most:.2f}" for held, most in pairs if most)


def _since(before: list[int], now: list[int]) -> list[int]:
    return [last - first for first, last in zip_longest(before, now, fillvalue=0)]
