"""What the outputs come to: means per configuration, and paired differences to the default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from structspec.bench.quality_configurations import DEFAULT
from structspec.bench.quality_grade import grade
from structspec.bench.quality_outputs import Output
from structspec.bench.quality_tasks import ExtractionTask

_NUM_RESAMPLES = 10_000
_INTERVAL = (2.5, 97.5)  # per cent

MEASURES = ("right_fields", "valid", "token_log_prob", "log_prob", "tokens", "seconds")


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over tasks, and how far above the default's it lies, with a 95 % interval."""

    mean: float
    difference: float
    low: float
    high: float

    @property
    def is_within_noise(self) -> bool:
        """Whether the interval holds no difference."""
        return self.low <= 0 <= self.high


@dataclass(frozen=True, slots=True)
class Summary:
    """One configuration over all tasks."""

    means: Mapping[str, Mean]  # by measure
    tokens_per_step: float | None  # of the outputs that finished
    num_unfinished: int

    def as_json(self) -> dict[str, Any]:
        """The same as plain values."""
        means = {
            name: {
                "mean": one.mean,
                "difference": one.difference,
                "interval": [one.low, one.high],
            }
            for name, one in self.means.items()
        }
        return {
            **means,
            "tokens_per_step": self.tokens_per_step,
            "unfinished": self.num_unfinished,
        }


def summarize(
    tasks: Sequence[ExtractionTask], outputs: Mapping[str, Sequence[Output]]
) -> dict[str, Summary]:
    """Each configuration's summary; outputs stand in the order of the tasks."""
    values = {name: _measure(tasks, column) for name, column in outputs.items()}
    default = values[DEFAULT.name]
    return {
        name: Summary(
            {measure: compare(column[measure], default[measure]) for measure in MEASURES},
            _tokens_per_step(outputs[name]),
            sum(output.error is not None for output in outputs[name]),
        )
        for name, column in values.items()
    }


def compare(values: Sequence[float], default: Sequence[float]) -> Mean:
    """The mean, and the mean difference pair by pair with its bootstrap interval.

    Resampling is seeded: the same values give the same interval.
    """
    differences = np.array(values) - np.array(default)
    chosen = np.random.default_rng(0).integers(
        len(differences), size=(_NUM_RESAMPLES, len(differences))
    )
    low, high = np.percentile(differences[chosen].mean(axis=1), _INTERVAL)
    return Mean(float(np.mean(values)), float(differences.mean()), float(low), float(high))


def _measure(tasks: Sequence[ExtractionTask], outputs: Sequence[Output]) -> dict[str, list[float]]:
    """For each measure one value a task."""
    columns: dict[str, list[float]] = {measure: [] for measure in MEASURES}
    for task, output in zip(tasks, outputs, strict=True):
        assert output.log_prob is not None
        graded, num_tokens = grade(output.text, task.schema, task.answer), len(output.token_ids)
        row = (
            graded.accuracy,
            float(graded.is_valid and output.error is None),
            output.log_prob / num_tokens,
            output.log_prob,
            float(num_tokens),
            output.seconds,
        )
        for measure, value in zip(MEASURES, row, strict=True):
            columns[measure].append(value)
    return columns


def _tokens_per_step(outputs: Sequence[Output]) -> float | None:
    finished = [(len(one.token_ids), one.num_steps) for one in outputs if one.num_steps]
    num_steps = sum(steps for _, steps in finished)
    return sum(tokens for tokens, _ in finished) / num_steps if num_steps else None
