"""What a handful of noisy values say of their median."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MedianInterval:
    """A median, two of the values around it, and how sure the true median lies between those."""

    median: float
    low: float
    high: float
    confidence: float


def median_interval(values: Sequence[float], confidence: float = 0.95) -> MedianInterval:
    """The narrowest pair of order statistics that is sure enough, else the outermost.

    Each value lies below the true median with probability 1/2, whatever the distribution:
    P(x[k] <= median <= x[n-1-k]) = 1 - 2 P(Binomial(n, 1/2) <= k). Six values reach 95 %.
    """
    ordered, num_values = sorted(values), len(values)
    k, sure = 0, _confidence(num_values, 0)
    while k + 1 < num_values // 2 and _confidence(num_values, k + 1) >= confidence:
        k, sure = k + 1, _confidence(num_values, k + 1)
    return MedianInterval(statistics.median(ordered), ordered[k], ordered[-1 - k], sure)


def _confidence(num_values: int, k: int) -> float:
    num_below = sum(math.comb(num_values, count) for count in range(k + 1))
    return max(0.0, 1 - 2 * math.ldexp(num_below, -num_values))


def quantile(values: Sequence[float], share: float) -> float:
    """The least value that at least this share of them does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
