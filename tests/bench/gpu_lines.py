"""The lines that gpu_figures.py leaves, put together again: one run a process."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Figure = dict[str, Any]


@dataclass
class EngineRun:
    """One process of one stage: what was asked, of which engine, and its figures."""

    stage: str
    commit: str
    options: str
    engine: Figure = field(default_factory=dict)
    figures: list[Figure] = field(default_factory=list)

    @property
    def is_large(self) -> bool:
        """Whether it is the large model, with random weights."""
        return bool(self.engine.get("load_format") == "dummy")

    def of_part(self, part: str) -> list[Figure]:
        """Its figures of one part."""
        return [figure for figure in self.figures if figure["part"] == part]


def read_runs(paths: Iterable[Path]) -> list[EngineRun]:
    """In the order of the lines; a process that never got its engine started is left out.

    The last line of a process that was cut may be half a line.
    """
    runs: list[EngineRun] = []
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                figure = json.loads(line)
            except json.JSONDecodeError:
                continue
            if figure["part"] == "run":
                runs.append(EngineRun(figure["stage"], figure["commit"], figure["options"]))
            elif figure["part"] == "engine":
                runs[-1].engine = figure
            else:
                runs[-1].figures.append(figure)
    return [run for run in runs if run.engine]


def run_of(runs: Sequence[EngineRun], stage: str, part: str, *, is_large: bool) -> EngineRun | None:
    """The last process of a stage that measured a part."""
    found = [run for run in runs if run.stage == stage and run.is_large == is_large]
    return next((run for run in reversed(found) if run.of_part(part)), None)


def figures_of(runs: Sequence[EngineRun], stage: str, part: str, *, is_large: bool) -> list[Figure]:
    """Of one part, as the last process of a stage measured it."""
    run = run_of(runs, stage, part, is_large=is_large)
    return [] if run is None else run.of_part(part)
