"""Just enough of SVG for bars and lines over axes, without a plotting library.

A Panel is a rectangle with scales; what it draws is kept as text, and `page` puts panels together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

COLOURS = (
    *("#4e79a7", "#f28e2b", "#59a14f", "#bab0ac", "#b07aa1"),
    *("#e15759", "#edc948", "#76b7b2", "#d7d7d7"),
)
_FONT = 'font-family="Helvetica, Arial, sans-serif"'
_HALO = 'stroke="white" stroke-width="3" paint-order="stroke"'  # readable on lines
_INK, _GRID = "#333333", "#e3e3e3"
_NUM_TICKS = 5
_LINE_HEIGHT = 13


@dataclass
class Panel:
    """A rectangle of the page; y goes from 0 to `most`, x from 0 to 1."""

    left: float
    top: float
    width: float
    height: float
    most: float
    shapes: list[str] = field(default_factory=list)

    def x(self, share: float) -> float:
        """Where a share of the width lies on the page."""
        return self.left + share * self.width

    def y(self, value: float) -> float:
        """Where a value lies on the page."""
        return self.top + self.height * (1 - value / self.most)

    def axes(self, title: str, unit: str) -> None:
        """The frame: a title, and lines at round values."""
        self.text(self.left, self.top - 12, title, size=13, is_bold=True)
        step = round_step(self.most)
        for index in range(math.floor(self.most / step + 1e-9) + 1):
            value = index * step
            y, right = self.y(value), self.left + self.width
            self.shapes.append(
                f'<line x1="{self.left:.1f}" y1="{y:.1f}" x2="{right:.1f}" y2="{y:.1f}"'
                f' stroke="{_GRID if index else _INK}"/>'
            )
            label = f"{value:g}" + (f" {unit}" if value + step > self.most else "")
            self.text(self.left - 6, y + 4, label, anchor="end")

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        anchor: str = "start",
        size: int = 11,
        is_bold: bool = False,
    ) -> None:
        """Words at a place of the page."""
        weight = ' font-weight="bold"' if is_bold else ""
        self.shapes.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"'
            f' fill="{_INK}" {_HALO} {_FONT}{weight}>{escape(words)}</text>'
        )

    def stack(self, share: float, width: float, values: Sequence[float]) -> None:
        """A bar of parts in the order of the colours; `share` of the width is its middle."""
        base = 0.0
        for value, colour in zip(values, COLOURS, strict=False):
            if value > 0:
                self._rectangle(share, width, base, base + value, f'fill="{colour}"')
                base += value

    def outline(self, share: float, width: float, value: float) -> None:
        """An empty bar."""
        self._rectangle(share, width, 0.0, value, f'fill="none" stroke="{_INK}"')

    def _rectangle(self, share: float, width: float, low: float, high: float, look: str) -> None:
        left, top = self.x(share) - width / 2, self.y(high)
        self.shapes.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}"'
            f' height="{self.y(low) - top:.1f}" {look}/>'
        )

    def line(self, points: Sequence[tuple[float, float]], colour: str) -> None:
        """A line through (share, value) with a dot at each."""
        places = [(self.x(share), self.y(value)) for share, value in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        self.shapes.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
        )
        self.shapes += [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places
        ]

    def labels(self, ends: Sequence[tuple[float, float, str]]) -> None:
        """Names at (share, value), where lines end; those that would touch move down."""
        taken: list[tuple[float, float]] = []
        for share, value, words in sorted(ends, key=lambda end: -end[1]):
            x, y = self.x(share) + 7, self.y(value) + 4
            while any(abs(x - a) < 60 and abs(y - b) < _LINE_HEIGHT for a, b in taken):
                y += 1
            taken.append((x, y))
            self.text(x, y, words)


def round_step(most: float) -> float:
    """1, 2, 2.5 or 5 times a power of ten, so that about five fit into `most`."""
    rough = most / _NUM_TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    factors = (1, 2, 2.5, 5, 10)
    return next(factor * power for factor in factors if factor * power >= rough * 0.999)


def page(width: float, height: float, panels: Sequence[Panel]) -> str:
    """The whole drawing, on white."""
    shapes = "\n".join(shape for panel in panels for shape in panel.shapes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}"'
        f' width="{width:g}" height="{height:g}">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{shapes}\n</svg>\n'
    )


def legend(panel: Panel, x: float, y: float, names: Sequence[str]) -> None:
    """The colours of `stack`, from the top part down as the bar has them."""
    for row, (name, colour) in enumerate(reversed(list(zip(names, COLOURS, strict=False)))):
        top = y + 17 * row
        panel.shapes.append(
            f'<rect x="{x:.1f}" y="{top:.1f}" width="12" height="12" fill="{colour}"/>'
        )
        panel.text(x + 18, top + 10, name)
