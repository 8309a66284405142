"""A matrix of rates as inline SVG: numbers and intervals in squares, means at the edges or none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from markupsafe import Markup

from onnxfr.evaluators.report.legend import shortened
from onnxfr.evaluators.report.svg import INK, MUTED, text

_CELL_WIDTH, _CELL_HEIGHT, _LEFT, _GAP = 66, 44, 140, 8
_DARK = (0.0, 0.447, 0.698)
_LETTERS = 17
_NARROWEST = 400
"""A map of one column would otherwise be blown up to the width of its box."""


@dataclass(frozen=True)
class Square:
    """One rate with its interval; ``own`` marks what is not a transfer (the diagonal)."""

    value: float | None
    low: float | None = None
    high: float | None = None
    own: bool = False


@dataclass(frozen=True)
class HeatMap:
    """Rows, columns and what stands between them; missing places stay empty."""

    title: str
    description: str
    rows: Sequence[str]
    columns: Sequence[str]
    squares: Mapping[tuple[str, str], Square]
    row_means: Mapping[str, Square] = field(default_factory=dict)
    column_means: Mapping[str, Square] = field(default_factory=dict)
    row_word: str = "made with"
    column_word: str = "shown to"

    def render(self) -> Markup:
        """Return the SVG element."""
        across, down = len(self.columns), len(self.rows)
        edge = ("mean",) if self.row_means or self.column_means else ()
        # Slanted names need room above by their length.
        top = 42 + 4 * max(len(_short(name)) for name in (*self.columns, *edge, ""))
        width = max(_NARROWEST, _LEFT + (across + len(edge)) * _CELL_WIDTH + _GAP + 4)
        height = top + (down + len(edge)) * _CELL_HEIGHT + _GAP + 4
        parts = [
            f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" '
            f'aria-label="{escape(self.title + ". " + self.description)}">',
            text(4, 15, self.title, size=14, weight=600),
            text(4, top - 10, f"{self.row_word} ↓  {self.column_word} →", size=9.5, colour=MUTED),
        ]
        for k, name in enumerate((*self.columns, *edge)):
            gap = _GAP if k == across else 0
            parts.append(_slanted(_LEFT + (k + 0.5) * _CELL_WIDTH + gap, top - 8, name))
        for row, name in enumerate((*self.rows, *edge)):
            y = top + row * _CELL_HEIGHT + (_GAP if row == down else 0)
            middle = y + _CELL_HEIGHT / 2 + 4
            parts.append(text(_LEFT - 8, middle, _short(name), anchor="end", size=12))
            for column, target in enumerate((*self.columns, *edge)):
                square = self._square(row, column)
                if square is not None:
                    gap = _GAP if column == across else 0
                    label = f"{self.row_word} {name}, {self.column_word} {target}"
                    parts.append(_drawn(square, _LEFT + column * _CELL_WIDTH + gap, y, label))
        return Markup("".join([*parts, "</svg>"]))

    def _square(self, row: int, column: int) -> Square | None:
        last_row, last_column = row == len(self.rows), column == len(self.columns)
        if last_row and last_column:
            return None
        if last_row:
            return self.column_means.get(self.columns[column])
        if last_column:
            return self.row_means.get(self.rows[row])
        return self.squares.get((self.rows[row], self.columns[column]))


def _drawn(square: Square, x: float, y: float, label: str) -> str:
    width, height = _CELL_WIDTH - 2, _CELL_HEIGHT - 2
    if square.value is None:
        return ""
    shade = min(max(square.value, 0.0), 1.0) ** 0.8
    rgb = [round(255 * (1 - shade * (1 - channel))) for channel in _DARK]
    ink = "#fff" if shade > 0.6 else INK
    dash = ' stroke-dasharray="4 3"' if square.own else ""
    edge = INK if square.own else "#c9d3da"
    note = " (white-box)" if square.own else ""
    middle = x + width / 2
    parts = [
        f'<g><title>{escape(label)}{note}</title><rect x="{x:.1f}" y="{y:.1f}" width="{width}" '
        f'height="{height}" rx="3" fill="rgb({rgb[0]},{rgb[1]},{rgb[2]})" stroke="{edge}"{dash}/>',
        text(
            middle,
            y + 19,
            f"{100 * square.value:.0f} %",
            anchor="middle",
            size=14,
            weight=600,
            colour=ink,
        ),
    ]
    if square.low is not None and square.high is not None:
        span = f"{100 * square.low:.0f}–{100 * square.high:.0f}"
        parts.append(text(middle, y + 34, span, anchor="middle", size=10.5, colour=ink))
    return "".join([*parts, "</g>"])


def _slanted(x: float, y: float, name: str) -> str:
    if len(name) == 1:
        return text(x, y, name, anchor="middle", size=12)
    label = text(0, 0, _short(name), size=12, colour=MUTED if name == "mean" else INK)
    return f'<g transform="translate({x:.1f} {y:.1f}) rotate(-38)">{label}</g>'


def _short(name: str) -> str:
    return shortened(name, _LETTERS)
