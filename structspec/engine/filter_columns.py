"""Temperature and filters of rows, as arrays of numbers that kernels can take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from structspec.request import SamplingParams

_LARGEST_TOP_K = np.iinfo(np.int32).max  # far beyond any vocabulary
_SMALLEST_TEMPERATURE = 1e-20  # of draws: logits divided by it are still finite float32
_LARGEST_TEMPERATURE = 1e30  # forbidden tokens' -inf divided by infinity would be no number


def filter_columns(params: Sequence[SamplingParams]) -> dict[str, NDArray[Any]]:
    """The columns `temperature`, `top_k`, `top_p` and `min_p`, an entry per row."""
    return {
        "temperature": np.array([_drawable(p.temperature) for p in params], np.float32),
        "top_k": np.array([min(p.top_k, _LARGEST_TOP_K) for p in params], np.int32),
        "top_p": np.array([p.top_p for p in params], np.float32),
        "min_p": np.array([p.min_p for p in params], np.float32),
    }


def _drawable(temperature: float) -> float:
    """A temperature that float32 can divide logits by, or 0."""
    return temperature and min(max(temperature, _SMALLEST_TEMPERATURE), _LARGEST_TEMPERATURE)
