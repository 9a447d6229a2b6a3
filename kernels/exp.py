"""exp(x) for float32 inside compiled loops, written so that the compiler can use vector lanes.

x = n ln 2 + r with |r| <= ln 2 / 2; exp(x) = 2^n (1 + r + r^2 P(r)). Within 2 units in the last
place; x is clamped to ±87, where float32 still has normal numbers.

Numba's disk cache does not see that a change here changes the callers too: after one, delete
`kernels/__pycache__`.
"""

from __future__ import annotations

import numpy as np

from structspec.kernels.compiled import compiled_in_order

_LIMIT = np.float32(87.0)
_LOG2_E = np.float32(1.4426950408889634)
_LN_2_HIGH = np.float32(0.693359375)  # n times this is exact; the rest of ln 2 follows
_LN_2_LOW = np.float32(-2.1219444e-4)
# P by Remez exchange on [-ln 2 / 2, ln 2 / 2], highest power first
_P5 = np.float32(1.98756915e-4)
_P4 = np.float32(1.39819995e-3)
_P3 = np.float32(8.33345191e-3)
_P2 = np.float32(4.16657959e-2)
_P1 = np.float32(1.66666655e-1)
_P0 = np.float32(5.00000012e-1)
_HALF = np.float32(0.5)
_ONE = np.float32(1.0)


@compiled_in_order  # else r loses the digits that the two parts of ln 2 are there for
def exp(x: np.float32) -> np.float32:
    """exp(x); call it from compiled code only."""
    x = min(max(x, -_LIMIT), _LIMIT)
    n = np.floor(x * _LOG2_E + _HALF)
    r = (x - n * _LN_2_HIGH) - n * _LN_2_LOW
    p = ((((_P5 * r + _P4) * r + _P3) * r + _P2) * r + _P1) * r + _P0
    power: np.float32 = np.int32((np.int32(n) + 127) << 23).view(np.float32)  # exponent bits of 2^n
    result: np.float32 = (p * r * r + r + _ONE) * power
    return result
