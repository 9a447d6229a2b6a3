"""Draw tokens per step by draft length, and the ideal beside, from the lines of bench_drafters.py.

python -m tests.bench.draft_plots docs/figures/drafts_by_length.svg LINES...
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bench.gpu_svg import COLOURS, Panel, page

_KINDS = ("copy", "agent loop", "tool calls", "16 schemas", "extraction", "code edit", "chat")
_WIDTH, _HEIGHT, _GAP, _COLUMNS = 290, 200, 110, 3
_HEADROOM = 1.1
Figure = dict[str, Any]  # plain values that were read as JSON


def read(paths: Sequence[Path]) -> dict[str, list[Figure]]:
    """What `hybrid` brought by kind of work, the shortest drafts first; of two lines the last."""
    found: dict[tuple[str, int], Figure] = {}
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            figure = json.loads(line)
            if figure.get("part") == "drafters" and figure["drafter"] == "hybrid":
                found[figure["work"], figure["most"]] = figure
    kinds = [kind for kind in _KINDS if any(work == kind for work, _ in found)]
    return {kind: [found[key] for key in sorted(found) if key[0] == kind] for kind in kinds}


def draw(kinds: dict[str, list[Figure]]) -> str:
    """A panel for each kind of work: measured and ideal tokens a step."""
    panels = []
    for index, (kind, figures) in enumerate(kinds.items()):
        left = 50 + (index % _COLUMNS) * (_WIDTH + _GAP)
        top = 40 + (index // _COLUMNS) * (_HEIGHT + _GAP)
        panels.append(_panel(kind, figures, left, top))
    num_rows = math.ceil(len(kinds) / _COLUMNS)
    return page(50 + _COLUMNS * (_WIDTH + _GAP), 20 + num_rows * (_HEIGHT + _GAP), panels)


def _panel(kind: str, figures: Sequence[Figure], left: float, top: float) -> Panel:
    lengths = [figure["most"] for figure in figures]
    lines = [[figure[name] for figure in figures] for name in ("tokens_per_step", "ideal")]
    panel = Panel(left, top, _WIDTH, _HEIGHT, max(map(max, lines)) * _HEADROOM)
    alphas = sorted({round(figure["alpha"], 2) for figure in figures})
    panel.axes(f"{kind}: tokens a step (alpha {alphas[0]:g} to {alphas[-1]:g})", "")
    places = [math.log2(1 + length) / math.log2(1 + lengths[-1]) for length in lengths]
    for place, length in zip(places, lengths, strict=True):
        panel.text(panel.x(place), top + _HEIGHT + 16, f"k = {length}", anchor="middle")
    ends = []
    for values, colour, name in zip(lines, COLOURS, ("measured", "ideal"), strict=False):
        panel.line([*zip(places, values, strict=True)], colour)
        ends.append((1.0, values[-1], name))
    panel.labels(ends)
    return panel


def main() -> None:
    """Write the drawing."""
    target, *lines = map(Path, sys.argv[1:])
    target.write_text(draw(read(lines)), encoding="utf-8")


if __name__ == "__main__":
    main()
