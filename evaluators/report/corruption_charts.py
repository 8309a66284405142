"""The pictures of a corruption run: radar, lines over severities, bars by category."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from markupsafe import Markup

from onnxfr.evaluators.base import Result
from onnxfr.evaluators.report.corruption_numbers import (
    CATEGORIES,
    Sheet,
    category_of,
    methods_of,
    title_of,
)
from onnxfr.evaluators.report.legend import shortened, top_margin
from onnxfr.evaluators.report.svg import (
    GRID,
    INK,
    MUTED,
    SERIES,
    Axis,
    Chart,
    line_style,
    linear_axis,
    text,
)
from onnxfr.evaluators.treatment import is_chain

_WIDTH, _HEIGHT, _RADIUS = 520, 400, 144
_RINGS = (60, 70, 80, 90, 100)
_FLOOR = 50.0


def radar(sheets: Sequence[Sheet], title: str) -> Markup:
    """Return accuracy by corruption on a wheel from 50 % (chance) at the hub to 100 %."""
    # A spoke that a model has not been asked about would look like a corruption it fails.
    methods = [
        name
        for name in methods_of(sheets)
        if not is_chain(name) and all(name in sheet.methods for sheet in sheets)
    ]
    if len(methods) < 3:
        return Markup("")
    centre = (_WIDTH / 2, _HEIGHT / 2 + 22)
    told = "; ".join(
        f"{sheet.model}: weakest {title_of(sheet.hardest(1)[0])}, "
        f"{100 * sheet.mean_of(sheet.hardest(1)[0]):.1f} percent"
        for sheet in sheets
    )
    parts = [
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(f"{title}. {told}.")}">',
        text(14, 18, title, size=14, weight=600),
        *_wheel(methods, centre),
    ]
    for number, sheet in enumerate(sheets):
        colour, dash = line_style(number)
        values = [100 * sheet.mean_of(name) for name in methods]
        places = [_spoke(centre, k, len(methods), value) for k, value in enumerate(values)]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        fill = "0.18" if len(sheets) == 1 else "0"
        style = f' stroke-dasharray="{dash}"' if dash else ""
        parts.append(
            f'<polygon points="{points}" fill="{colour}" fill-opacity="{fill}" stroke="{colour}" '
            f'stroke-width="2"{style}/>'
        )
        if len(sheets) > 1:
            parts.extend(_key(number, sheet.model, colour, style))
    return Markup("".join([*parts, "</svg>"]))


def severity_lines(sheet: Sheet) -> list[Markup]:
    """Return one chart per category: accuracy of each of its corruptions over severities."""
    if len(sheet.severities) < 2:
        return []
    charts = []
    for name, title in CATEGORIES:
        methods = [m for m in sheet.methods if category_of(m) == name and not is_chain(m)]
        if methods:
            rows = [(title_of(method), _line(sheet, method)) for method in methods]
            single = f"{title}: {rows[0][0]}" if len(rows) == 1 else title
            charts.append(_lines(single, rows))
    return charts


def model_lines(sheets: Sequence[Sheet]) -> list[Markup]:
    """Return one chart per corruption: the accuracy of every model over severities."""
    if all(len(sheet.severities) < 2 for sheet in sheets):
        return []
    charts = []
    for method in methods_of(sheets):
        rows = [(sheet.model, _line(sheet, method)) for sheet in sheets]
        played = [(model, points) for model, points in rows if points]
        if played and not is_chain(method):
            charts.append(_lines(title_of(method), played))
    return charts


def category_bars(sheets: Sequence[Sheet]) -> Markup:
    """Return the share of clean accuracy lost in each category, one bar per model."""
    rows = [sheet.category_values("rce") for sheet in sheets]
    titles = [title for _, title in CATEGORIES if any(title in row for row in rows)]
    if not titles:
        return Markup("")
    known = [result for row in rows for result in row.values()]
    ends = [100 * end for r in known for end in (r.low, r.value, r.high) if end is not None]
    chart = Chart(
        title="Accuracy lost by category",
        description="; ".join(
            f"{sheet.model}: "
            + ", ".join(f"{title} {100 * (r.value or 0.0):.1f} percent" for title, r in row.items())
            for sheet, row in zip(sheets, rows, strict=True)
            if row
        ),
        x=Axis(
            "",
            0.0,
            float(len(titles)),
            tuple((k + 0.5, _short(title)) for k, title in enumerate(titles)),
        ),
        y=linear_axis("clean accuracy lost (RCE), %", min(0.0, *ends), max(1.0, *ends) * 1.05),
        top=top_margin([sheet.model for sheet in sheets]) + 14 * (len(sheets) > 1),
    )
    width = 0.8 / len(sheets)
    for number, (sheet, row) in enumerate(zip(sheets, rows, strict=True)):
        label = sheet.model if len(sheets) > 1 else ""
        for title, result in row.items():
            left = titles.index(title) + 0.1 + number * width
            _bar(chart, left, width, result, SERIES[number % len(SERIES)], label)
            label = ""
    return chart.render()


def _bar(chart: Chart, left: float, width: float, rce: Result, colour: str, label: str) -> None:
    value = 100 * (rce.value or 0.0)
    chart.area([(left, value), (left + 0.9 * width, value)], colour, label)
    if rce.low is not None and rce.high is not None:
        middle = left + 0.45 * width
        chart.line([(middle, 100 * rce.low), (middle, 100 * rce.high)], INK)


def _line(sheet: Sheet, method: str) -> list[tuple[float, float]]:
    found = []
    for severity in sheet.severities:
        value = sheet.value("accuracy", method, f"severity={severity}")
        if value is not None:
            found.append((float(severity), 100 * value))
    return found


def _lines(title: str, rows: Sequence[tuple[str, list[tuple[float, float]]]]) -> Markup:
    levels = sorted({x for _, points in rows for x, _ in points})
    lowest = min(y for _, points in rows for _, y in points)
    told = "; ".join(
        f"{name} from {points[0][1]:.1f} to {points[-1][1]:.1f} percent" for name, points in rows
    )
    chart = Chart(
        title=title,
        description=f"Accuracy over severities: {told}.",
        x=Axis("severity", levels[0], levels[-1], tuple((x, f"{x:g}") for x in levels)),
        y=linear_axis("accuracy, %", min(_FLOOR, math.floor(lowest / 5) * 5), 100.0),
        top=top_margin([name for name, _ in rows]) + 14 * (len(rows) > 1),
    )
    for number, (name, points) in enumerate(rows):
        colour, dash = line_style(number)
        label = name if len(rows) > 1 else ""
        chart.line(points, colour, dash, label)
        for point in points:
            chart.dot(*point, colour, 3)
    return chart.render()


def _spoke(centre: tuple[float, float], at: int, count: int, value: float) -> tuple[float, float]:
    angle = 2 * math.pi * at / count - math.pi / 2
    reach = _RADIUS * min(max((value - _FLOOR) / (100 - _FLOOR), 0.0), 1.0)
    return centre[0] + reach * math.cos(angle), centre[1] + reach * math.sin(angle)


def _wheel(methods: Sequence[str], centre: tuple[float, float]) -> list[str]:
    parts = []
    for ring in _RINGS:
        places = [_spoke(centre, k, len(methods), ring) for k in range(len(methods))]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polygon points="{points}" fill="none" stroke="{GRID}"/>')
        parts.append(text(centre[0] + 3, places[0][1] + 10, f"{ring}", size=9.5, colour=MUTED))
    for k, method in enumerate(methods):
        x, y = _spoke(centre, k, len(methods), 100)
        parts.append(
            f'<line x1="{centre[0]:.1f}" y1="{centre[1]:.1f}" x2="{x:.1f}" y2="{y:.1f}" '
            f'stroke="{GRID}"/>'
        )
        across, down = (
            centre[0] + (x - centre[0]) * 1.07,
            centre[1] + (y - centre[1]) * 1.07,
        )
        lean = (x - centre[0]) / _RADIUS
        anchor = "middle" if abs(lean) < 0.15 else ("start" if lean > 0 else "end")
        parts.append(text(across, down + 4, title_of(method), anchor=anchor, size=11))
    return parts


def _key(number: int, name: str, colour: str, style: str) -> list[str]:
    column, row = number % 3, number // 3
    x, y = 14 + 150 * column, 34 + 15 * row
    return [
        f'<line x1="{x}" y1="{y}" x2="{x + 16}" y2="{y}" stroke="{colour}" '
        f'stroke-width="2.5"{style}/>',
        text(x + 20, y + 4, shortened(name, 20), size=11),
    ]


def _short(title: str) -> str:
    return title.split(" and ")[0]
