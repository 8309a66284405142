"""What so many questions buy, as charts and words: shared by local and remote query attacks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from onnxfr.evaluators.report.legend import top_margin
from onnxfr.evaluators.report.svg import Axis, Chart, line_style, linear_axis, log_axis
from onnxfr.evaluators.report.wording import count
from onnxfr.metrics.intervals import Estimate

AIMS = {"dodge": "not to be recognised", "impersonate": "to be taken for somebody else"}
"""What an attacker wants, after "wants"."""
_CHANGES = {"l2": "median change (RMS), grey levels", "linf": "median largest change, grey levels"}
_MEASURES = {"l2": "root mean square", "linf": "any pixel"}


@dataclass(frozen=True)
class QuestionCurve:
    """Estimates after growing numbers of questions; ``style`` keeps an attack's colour."""

    name: str
    style: int
    points: Sequence[tuple[int, Estimate]]


def success_chart(title: str, curves: Sequence[QuestionCurve]) -> Markup:
    """Return the share of pairs won against questions, with intervals."""
    chart = Chart(
        title=title,
        description="Share of pairs won against the number of questions, with 95 % bands.",
        x=_questions(curves),
        y=linear_axis("pairs won, %", 0.0, 100.0),
        top=top_margin([curve.name for curve in curves]),
    )
    for curve in curves:
        _draw(chart, curve, 100.0)
    return chart.render()


def distance_chart(title: str, curves: Sequence[QuestionCurve], norm: str) -> Markup:
    """Return the median distance of the closest win against questions, with intervals."""
    seen = [e.value for curve in curves for _, e in curve.points if math.isfinite(e.value)]
    chart = Chart(
        title=title,
        description="Median distance of the closest win, in grey levels, with 95 % bands.",
        x=_questions(curves),
        y=linear_axis(_CHANGES[norm], 0.0, max(seen, default=1.0) * 1.15),
        top=top_margin([curve.name for curve in curves]),
    )
    for curve in curves:
        _draw(chart, curve, 1.0)
    return chart.render()


def limit_text(eps: float, norm: str) -> str:
    """Write how far a picture may be from the clean one to count."""
    return f"{255 * eps:.3g} grey levels ({_MEASURES[norm]})"


def distance_text(found: Estimate) -> str:
    """Write a median distance in grey levels, with its interval where there are pairs enough."""
    if not math.isfinite(found.value):
        return "no win for half of the pairs"
    if not _bounded(found):
        return f"{found.value:.2f}"
    return f"{found.value:.2f} ({found.low:.2f} – {_bound(found.high)})"


def questions_text(found: Estimate, cap: int) -> str:
    """Write a median number of questions with its interval, as far as anybody asked."""
    value = count(found.value) if math.isfinite(found.value) else f">{count(cap)}"
    if not _bounded(found) or not math.isfinite(found.low):
        return value
    if not math.isfinite(found.high):
        return f"{value} (≥{count(found.low)})"
    return f"{value} ({count(found.low)} – {count(found.high)})"


def _bounded(found: Estimate) -> bool:
    """Tell whether the interval says anything: fewer than six pairs leave it open on both ends."""
    return found.low > 0 or math.isfinite(found.high)


def _bound(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else "∞"


def _questions(curves: Sequence[QuestionCurve]) -> Axis:
    asked = [place for curve in curves for place, _ in curve.points]
    return log_axis("questions asked about a pair", min(asked), max(*asked, min(asked) + 1))


def _draw(chart: Chart, curve: QuestionCurve, scale: float) -> None:
    known = [(math.log10(q), e) for q, e in curve.points if math.isfinite(e.value)]
    low, line, high = (
        [(x, scale * min(getattr(e, end), 1e9)) for x, e in known]
        for end in ("low", "value", "high")
    )
    colour, dash = line_style(curve.style)
    if all(_bounded(e) for _, e in known):
        chart.band(low, high, colour)
    chart.line(line, colour, dash, curve.name)
