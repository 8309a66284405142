"""Small charts as inline SVG text: sharp in print, light on a phone, the same bytes every time.

Written by hand because a plotting library would add megabytes, its own fonts and its own idea of
randomness (element ids) for four kinds of line. Colours are Okabe and Ito's, which people with any
colour vision can tell apart; lines differ in dash as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from markupsafe import Markup

from onnxfr.evaluators.report.legend import LONGEST, ROW, USUAL_MARGIN, rows_of, shortened, width_of

INK, MUTED, GRID = "#1a1a1a", "#5a5a5a", "#e2e2e2"
BLUE, ORANGE, GREEN, PURPLE, SKY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9"
SERIES = (BLUE, ORANGE, GREEN, PURPLE, SKY, INK)
_NARROW = 1e-9
DASHES = ("", "7 4", "2 3", "9 3 2 3", "4 2", "1 4")


def line_style(number: int) -> tuple[str, str]:
    """Return colour and dash of a chart's lines by number; the first 36 all differ."""
    round_, colour = divmod(number, len(SERIES))
    return SERIES[colour], DASHES[(colour + round_) % len(DASHES)]


Point = tuple[float, float]


@dataclass(frozen=True)
class Axis:
    """One axis: what it says, the range it shows, and where its labelled ticks are."""

    label: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]

    def __post_init__(self) -> None:
        low, high = widened(self.low, self.high)
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)


@dataclass
class Chart:
    """A frame with two axes, filled by calls and rendered once."""

    title: str
    description: str
    x: Axis
    y: Axis
    width: int = 440
    height: int = 310
    left: int = 56
    right: int = 14
    top: int = 34
    bottom: int = 48
    _under: list[str] = field(default_factory=list)
    _over: list[str] = field(default_factory=list)
    _legend: list[tuple[str, str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Grow by what a long legend needs, lest nothing be left of the frame."""
        self.height += max(0, self.top - USUAL_MARGIN)

    def at(self, x: float, y: float) -> Point:
        """Return the place of a value, kept inside the frame."""
        across = (x - self.x.low) / (self.x.high - self.x.low)
        up = (y - self.y.low) / (self.y.high - self.y.low)
        inner = (self.width - self.left - self.right, self.height - self.top - self.bottom)
        return (
            self.left + min(max(across, 0.0), 1.0) * inner[0],
            self.top + (1 - min(max(up, 0.0), 1.0)) * inner[1],
        )

    def line(self, points: Sequence[Point], colour: str, dash: str = "", label: str = "") -> None:
        """Draw a line through values; a label puts it into the legend."""
        style = f' stroke-dasharray="{dash}"' if dash else ""
        places = thin([self.at(*point) for point in points])
        self._over.append(
            f'<polyline fill="none" stroke="{colour}" stroke-width="2"{style} '
            f'stroke-linejoin="round" points="{_points(places)}"/>'
        )
        if label:
            self._legend.append((label, colour, dash))

    def area(self, points: Sequence[Point], colour: str, label: str = "") -> None:
        """Fill the space between values and the lower axis."""
        if not points:
            return
        places = [self.at(*point) for point in points]
        floor = self.at(0, self.y.low)[1]
        closed = [(places[0][0], floor), *places, (places[-1][0], floor)]
        self._over.append(
            f'<polygon fill="{colour}" fill-opacity="0.28" stroke="{colour}" stroke-width="1.5" '
            f'points="{_points(closed)}"/>'
        )
        if label:
            self._legend.append((label, colour, "area"))

    def band(self, lower: Sequence[Point], upper: Sequence[Point], colour: str) -> None:
        """Fill the space between two lines: the interval around a curve."""
        if not lower:
            return
        places = [self.at(*point) for point in (*lower, *reversed(upper))]
        self._under.append(
            f'<polygon fill="{colour}" fill-opacity="0.14" stroke="none" '
            f'points="{_points(places)}"/>'
        )

    def dot(self, x: float, y: float, colour: str, radius: float = 4.0) -> None:
        """Mark one value."""
        across, down = self.at(x, y)
        self._over.append(
            f'<circle cx="{across:.1f}" cy="{down:.1f}" r="{radius:g}" fill="{colour}" '
            'stroke="#fff" stroke-width="1"/>'
        )

    def upright(self, x: float, label: str) -> None:
        """Draw a dashed vertical line with a label at its top."""
        across, top = self.at(x, self.y.high)
        bottom = self.at(x, self.y.low)[1]
        # The label goes to the side with more room.
        anchor, shift = ("end", -5) if across > self.width * 0.6 else ("start", 5)
        self._over.append(
            f'<line x1="{across:.1f}" y1="{top:.1f}" x2="{across:.1f}" y2="{bottom:.1f}" '
            f'stroke="{INK}" stroke-width="1.5" stroke-dasharray="5 4"/>'
            + text(across + shift, top + 12, label, anchor=anchor, size=11.5)
        )

    def level(self, y: float, label: str) -> None:
        """Draw a thin horizontal line with a label at its right end."""
        (left, down), right = self.at(self.x.low, y), self.at(self.x.high, y)[0]
        self._over.insert(
            0,
            f'<line x1="{left:.1f}" y1="{down:.1f}" x2="{right:.1f}" y2="{down:.1f}" '
            f'stroke="{MUTED}" stroke-dasharray="2 3"/>'
            + text(right - 4, down - 5, label, anchor="end", size=11, colour=MUTED),
        )

    def shade(self, x_from: float, x_to: float, label: str) -> None:
        """Grey out a range of the horizontal axis that means little."""
        (left, top), (right, bottom) = self.at(x_from, self.y.high), self.at(x_to, self.y.low)
        if right - left < 1:
            return
        self._under.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" '
            f'height="{bottom - top:.1f}" fill="#efefef"/>'
            + text(left + 5, top + 14, label, size=10.5, colour=MUTED)
        )

    def render(self) -> Markup:
        """Return the SVG element."""
        parts = [
            f'<svg class="chart" viewBox="0 0 {self.width} {self.height}" role="img" '
            f'aria-label="{escape(self.title + ". " + self.description)}">',
            text(self.left, 15, self.title, size=14, weight=600),
            *self._under,
            *self._axes(),
            *self._over,
            *self._key(),
            "</svg>",
        ]
        return Markup("".join(parts))

    def _axes(self) -> list[str]:
        (x0, y1), (x1, y0) = self.at(self.x.low, self.y.high), self.at(self.x.high, self.y.low)
        parts = []
        for value, label in self.x.ticks:
            across = self.at(value, self.y.low)[0]
            parts.append(_rule(across, y0, across, y1, GRID))
            # A long label under the last tick would be cut off at the edge.
            middle = min(across, self.width - 3.4 * len(label) - 2)
            parts.append(text(middle, y0 + 16, label, anchor="middle", size=11.5))
        for value, label in self.y.ticks:
            down = self.at(self.x.low, value)[1]
            parts.append(_rule(x0, down, x1, down, GRID))
            parts.append(text(x0 - 6, down + 4, label, anchor="end", size=11.5))
        parts.append(_rule(x0, y0, x1, y0, INK) + _rule(x0, y0, x0, y1, INK))
        middle = (x0 + x1) / 2
        parts.append(text(middle, self.height - 8, self.x.label, anchor="middle", size=12))
        down = (y0 + y1) / 2
        parts.append(
            f'<g transform="translate(13 {down:.1f}) rotate(-90)">'
            + text(0, 0, self.y.label, anchor="middle", size=12)
            + "</g>"
        )
        return parts

    def _key(self) -> list[str]:
        parts = []
        for number, row in enumerate(rows_of([label for label, _, _ in self._legend])):
            across, down = float(self.width - self.right), 25 + ROW * number
            for place in reversed(row):
                label, colour, dash = self._legend[place]
                name = shortened(label, LONGEST)
                across -= width_of(name)
                parts.append(_swatch(across, down, colour, dash))
                parts.append(text(across + 20, down + 4, name, size=11.5))
        return parts


def widened(low: float, high: float) -> Point:
    """Return the range, with room around its one value where it has no width to draw on."""
    return (low, high) if high - low > _NARROW * max(1.0, abs(low)) else (low - 0.5, low + 0.5)


def linear_axis(label: str, low: float, high: float, digits: int | None = None) -> Axis:
    """Return an axis with about five round ticks."""
    low, high = widened(low, high)
    span = high - low
    step = 10 ** math.floor(math.log10(span / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if span / (step * factor) <= 5.5)
    first = math.ceil(low / step - 1e-9)
    values = [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]
    places = digits if digits is not None else max(0, -math.floor(math.log10(step) + 1e-9))
    return Axis(label, low, high, tuple((value, f"{value:.{places}f}") for value in values))


def log_axis(label: str, low: float, high: float) -> Axis:
    """Return an axis of base-ten logarithms with ticks at 1, 2 and 5 times powers of ten."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    values = [m * 10.0**k for k in range(first, last + 1) for m in (1, 2, 5)]
    inside = [value for value in values if low * 0.999 <= value <= high * 1.001]
    shown = inside if len(inside) <= 9 else [v for v in inside if f"{v:e}".startswith("1.0")]
    ticks = tuple((math.log10(value), f"{value:,.10g}") for value in shown)
    return Axis(label, math.log10(low), math.log10(high), ticks)


def thin(points: Sequence[Point]) -> list[Point]:
    """Drop points that a reader cannot see: repeats, and the middle of straight runs."""
    kept: list[Point] = []
    for across, down in ((round(a, 1), round(b, 1)) for a, b in points):
        if kept and kept[-1] == (across, down):
            continue
        straight = len(kept) > 1 and (
            kept[-2][0] == kept[-1][0] == across or kept[-2][1] == kept[-1][1] == down
        )
        if straight:
            kept[-1] = (across, down)
        else:
            kept.append((across, down))
    return kept


def _swatch(x: float, y: float, colour: str, dash: str) -> str:
    if dash == "area":
        return (
            f'<rect x="{x:.1f}" y="{y - 4:g}" width="16" height="8" fill="{colour}" '
            f'fill-opacity="0.28" stroke="{colour}"/>'
        )
    style = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<line x1="{x:.1f}" y1="{y:g}" x2="{x + 16:.1f}" y2="{y:g}" '
        f'stroke="{colour}" stroke-width="2.5"{style}/>'
    )


def _points(places: Sequence[Point]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def _rule(x0: float, y0: float, x1: float, y1: float, colour: str) -> str:
    return f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" stroke="{colour}"/>'


def text(
    x: float,
    y: float,
    words: str,
    *,
    anchor: str = "start",
    size: float = 12,
    weight: int = 400,
    colour: str = INK,
) -> str:
    """Return a text element."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size:g}" '
        f'font-weight="{weight}" fill="{colour}">{escape(words)}</text>'
    )
