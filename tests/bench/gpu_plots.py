"""Drawings of where a step's time goes and how it grows, from the lines of gpu_figures.py.

python -m tests.bench.gpu_plots docs/figures LINES...
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.bench.gpu_lines import Figure, figures_of, read_runs
from tests.bench.gpu_svg import COLOURS, Panel, legend, page

NAMES = {True: "8b", False: "smollm2"}
_TITLES = {True: "8B shape", False: "SmolLM2-135M"}
_PARTS = {
    "schedule": "schedule",
    "draft": "draft",
    "launch": "pack and launch",
    "wait": "wait for the device",
    "matchers": "move matchers",
    "masks": "fill masks",
    "sample": "launch sampling",
    "update": "take in tokens",
    "other": "between the parts",
}
_WIDTH, _HEADROOM = 980, 1.08


def draw_parts(found: Sequence[Figure], title: str) -> str:
    """Stacked bars of the host's parts by test and requests, the device's time as an outline."""
    panels = []
    for row, has_drafts in enumerate((False, True)):
        bars = [one for one in found if one["by"] == "test" and one["is_speculative"] == has_drafts]
        if bars:
            words = "with drafts" if has_drafts else "without drafts"
            panels.append(_bars(bars, f"{title}: ms of a step, {words}", 40 + 330 * row))
    legend(panels[0], 800, 60, list(_PARTS.values()))
    panels[0].text(800, 60 + 17 * len(_PARTS) + 24, "outlined: the device is busy")
    return page(_WIDTH, 40 + 330 * len(panels), panels)


def _bars(bars: Sequence[Figure], title: str, top: float) -> Panel:
    most = max(max(one["step_ms"], _device_ms(one)) for one in bars) * _HEADROOM
    panel = Panel(60, top, 720, 240, most)
    panel.axes(title, "ms")
    sizes = sorted({one["requests"] for one in bars})
    tests = list(dict.fromkeys(one["test"] for one in bars))
    for place, size in enumerate(sizes):
        middle = (place + 0.5) / len(sizes)
        panel.text(panel.x(middle), top + 276, f"{size} at once", anchor="middle", is_bold=True)
        for index, test in enumerate(tests):
            chosen = [one for one in bars if (one["requests"], one["test"]) == (size, test)]
            if not chosen:
                continue
            share = (place + (index + 0.9) / (len(tests) + 0.8)) / len(sizes)
            panel.stack(share, 18, [chosen[0]["host_ms"][part] for part in _PARTS])
            if chosen[0]["device_ms"]:
                panel.outline(share + 16 / panel.width, 10, _device_ms(chosen[0]))
            panel.text(panel.x(share), top + 256, test, anchor="middle", size=10)
    return panel


def _device_ms(one: Figure) -> float:
    return float(sum(one["device_ms"].values()))


def draw_growth(found: Sequence[Figure], title: str) -> str:
    """Lines of a step's time by requests, context and guesses."""
    plain = [one for one in found if one["by"] == "test" and not one["is_speculative"]]
    panels = [
        _lines(f"{title}: ms of a step by requests", 0, plain, "requests", "test", "{}"),
        _lines("by context", 1, _of(found, "context"), "context", "requests", "{} at once"),
        _lines("by guesses", 2, _of(found, "guesses"), "guesses", "requests", "{} at once"),
    ]
    return page(_WIDTH, 330, [panel for panel in panels if panel is not None])


def _of(found: Sequence[Figure], kind: str) -> list[Figure]:
    return [one for one in found if one["by"] == kind]


def _lines(
    title: str, place: int, found: Sequence[Figure], axis: str, group: str, label: str
) -> Panel | None:
    """One line a group over equally spaced values, which double from one to the next or about."""
    if not found:
        return None
    panel = Panel(60 + 325 * place, 40, 200, 240, max(one["step_ms"] for one in found) * _HEADROOM)
    panel.axes(title, "ms")
    values = sorted({one[axis] for one in found})
    shares = {
        value: (index + 0.3) / max(1.0, len(values) - 0.4) for index, value in enumerate(values)
    }
    for value, share in shares.items():
        panel.text(panel.x(share), 298, _short(value), anchor="middle")
    ends = []
    for colour, name in zip(COLOURS, dict.fromkeys(one[group] for one in found), strict=False):
        line = sorted((one[axis], one["step_ms"]) for one in found if one[group] == name)
        panel.line([(shares[x], y) for x, y in line], colour)
        ends.append((shares[line[-1][0]], line[-1][1], label.format(name)))
    panel.labels(ends)
    return panel


def _short(value: int) -> str:
    return f"{value // 1024}k" if value >= 1024 and value % 1024 == 0 else str(value)


def drawings(lines: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """File names, and what is drawn there."""
    runs = read_runs(lines)
    for is_large, name in NAMES.items():
        found = figures_of(runs, "steps", "steps", is_large=is_large)
        measured = [one for one in found if "step_ms" in one and math.isfinite(one["step_ms"])]
        if any(one["by"] == "test" for one in measured):
            yield f"steps-{name}.svg", draw_parts(measured, _TITLES[is_large])
            yield f"growth-{name}.svg", draw_growth(measured, _TITLES[is_large])


def main() -> None:
    folder, *lines = map(Path, sys.argv[1:])
    folder.mkdir(parents=True, exist_ok=True)
    for name, drawing in drawings(lines):
        (folder / name).write_text(drawing, encoding="utf-8")


if __name__ == "__main__":
    main()
