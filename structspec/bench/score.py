"""Counting outcomes: one score per column, all sources and the real-world part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from structspec.bench.cases import Case
from structspec.bench.outcome import Outcome

PERCENTILES = (50, 90, 99)
COUNTED = ("right", "approximated", "under", "over", "refused", "crash")
FINE = ("right", "untested")

Judged = Sequence[tuple[Case, Outcome]]


@dataclass(frozen=True, slots=True)
class Score:
    """How often each verdict fell, and what compiling and masking cost.

    `tested` are the schemas with at least one settled instance; the others, which only had to
    compile, are in `untested` by what came of them.
    """

    counts: Mapping[str, int]
    tested: int
    exact_reports: int
    untested: Mapping[str, int]
    doubtful_instances: int
    compile_ms: NDArray[np.float64]
    mask_us: NDArray[np.float32]

    def share(self, verdict: str) -> float:
        """Of the tested schemas, in percent."""
        return 100 * self.counts[verdict] / self.tested if self.tested else 0.0

    def as_json(self) -> dict[str, Any]:
        """Plain numbers."""
        return {
            **self.counts,
            "exact_reports": self.exact_reports,
            "tested": self.tested,
            "untested": dict(self.untested),
            "doubtful_instances": self.doubtful_instances,
            "compile_ms": percentiles(self.compile_ms),
            "mask_us": percentiles(self.mask_us),
            "masks": len(self.mask_us),
        }


def score(judged: Judged) -> Score:
    """The score over these cases."""
    tested = [(case, outcome) for case, outcome in judged if case.instances]
    counts = Counter(outcome.verdict for _, outcome in tested)
    untested = Counter(
        "compiled" if outcome.verdict == "untested" else outcome.verdict
        for case, outcome in judged
        if not case.instances
    )
    times = [outcome.compile_ms for _, outcome in judged if outcome.compile_ms is not None]
    masks = [np.frombuffer(outcome.mask_us, np.float32) for _, outcome in judged]
    return Score(
        counts={verdict: counts[verdict] for verdict in COUNTED},  # type: ignore[index]
        tested=len(tested),
        exact_reports=sum(outcome.is_exact for _, outcome in tested),
        untested=dict(untested),
        doubtful_instances=sum(case.num_doubtful for case, _ in judged),
        compile_ms=np.array(times, np.float64),
        mask_us=np.concatenate(masks) if masks else np.zeros(0, np.float32),
    )


def real_world(judged: Judged) -> Judged:
    """Without what was made up to be difficult."""
    return [(case, outcome) for case, outcome in judged if case.is_real_world]


def by_source(judged: Judged) -> dict[str, Judged]:
    """The cases of each source, in order of name."""
    sources = sorted({case.source for case, _ in judged})
    return {name: [pair for pair in judged if pair[0].source == name] for name in sources}


def by_keyword(judged: Judged) -> dict[str, Judged]:
    """The cases that use each keyword; one case is under many."""
    found: dict[str, list[tuple[Case, Outcome]]] = {}
    for case, outcome in judged:
        for keyword in set(case.keywords):
            found.setdefault(keyword, []).append((case, outcome))
    return dict(found)


def percentiles(values: NDArray[Any]) -> dict[str, float | None]:
    """p50, p90 and p99; None where nothing was measured."""
    if not len(values):
        return {f"p{p}": None for p in PERCENTILES}
    found = np.percentile(values, PERCENTILES)
    return {f"p{p}": round(float(v), 3) for p, v in zip(PERCENTILES, found, strict=True)}


def as_json(columns: Mapping[str, Judged]) -> dict[str, Any]:
    """By column: the real-world part, and under "all" every source."""
    return {
        name: {**score(real_world(judged)).as_json(), "all": score(judged).as_json()}
        for name, judged in columns.items()
    }
