"""The four pictures of a verification run: histogram, ROC, DET, folds."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup
from scipy import special

from onnxfr.evaluators.report.legend import top_margin
from onnxfr.evaluators.report.svg import BLUE, ORANGE, Axis, Chart, line_style, linear_axis
from onnxfr.evaluators.scored import Scored
from onnxfr.metrics.protocols import AccuracyResult
from onnxfr.metrics.thresholds import Threshold
from onnxfr.metrics.verification import Curve, curve, det_points

_BINS = 64
_RATES = (1e-5, 1e-4, 1e-3, 1e-2, 0.05, 0.2, 0.4, 0.6, 0.8, 0.95)


def histogram(scored: Scored, threshold: Threshold) -> Markup:
    """Return the distributions of genuine and impostor scores around the threshold."""
    known = ~scored.rejected
    genuine, impostor = scored.scores[known & scored.same], scored.scores[known & ~scored.same]
    low = min(float(genuine.min()), float(impostor.min()), threshold.value)
    high = max(float(genuine.max()), float(impostor.max()), threshold.value)
    across = linear_axis("similarity (cosine)", low, high)
    edges = np.linspace(across.low, across.high, _BINS + 1)
    shares = [np.histogram(part, edges)[0] / part.size * 100 for part in (impostor, genuine)]
    top = max(float(share.max()) for share in shares) * 1.15
    chart = Chart(
        title="Scores",
        description=(
            f"Impostor pairs average {impostor.mean():.2f}, genuine pairs {genuine.mean():.2f}; "
            f"a pair is accepted above {threshold.value:.3f}."
        ),
        x=across,
        y=linear_axis("share of pairs, %", 0.0, top),
    )
    for share, colour, label in zip(shares, (ORANGE, BLUE), ("impostor", "genuine"), strict=True):
        steps = [
            point
            for at in range(_BINS)
            for point in ((edges[at], share[at]), (edges[at + 1], share[at]))
        ]
        chart.area(steps, colour, label)
    chart.upright(threshold.value, f"threshold {threshold.value:.3f}")
    return chart.render()


def roc(runs: Sequence[Scored], names: Sequence[str]) -> Markup:
    """Return true accepts against false matches, with the unresolved part greyed out."""
    curves = [curve(each.scores, each.same, each.rejected) for each in runs]
    lowest = min(-4, *(-math.ceil(math.log10(each.impostor)) for each in curves))
    floor = min(float(_tar_at(each, 10.0 ** (lowest + 1))) for each in curves)
    bottom = max(0.0, math.floor(floor * 20 - 0.2) / 20)
    chart = Chart(
        title="ROC",
        description=_told(runs, curves),
        x=Axis(
            "false match rate (strangers accepted)",
            lowest,
            0,
            tuple((k, "1" if k == 0 else f"1e{k}") for k in range(lowest, 1)),
        ),
        y=linear_axis("genuine accepted, %", bottom * 100, 100.0),
        top=top_margin(names),
    )
    resolved = math.log10(3 / max(each.impostor for each in curves))
    chart.shade(lowest, resolved, "too few pairs")
    for number, (each, name) in enumerate(zip(curves, names, strict=True)):
        points = [
            (math.log10(fmr) if fmr > 0 else float(lowest), 100 * tar)
            for fmr, tar in zip(each.fmr.tolist(), each.tar.tolist(), strict=True)
        ]
        label = name if len(names) > 1 else ""
        chart.line(points, *line_style(number), label)
    return chart.render()


def det(runs: Sequence[Scored], names: Sequence[str]) -> Markup:
    """Return the DET curve: both errors on probit axes, so Gaussian scores give straight lines."""
    curves = [curve(each.scores, each.same, each.rejected) for each in runs]
    finest = min(0.5 / max(each.impostor, each.genuine) for each in curves)
    low, high = float(special.ndtri(finest)), float(special.ndtri(0.6))
    ticks = tuple(
        (float(special.ndtri(rate)), f"{100 * rate:g}")
        for rate in _RATES
        if low <= special.ndtri(rate) <= high
    )
    chart = Chart(
        title="DET",
        description="False non-match rate against false match rate on probit axes; nearer to the "
        "lower left corner is better.",
        x=Axis("false match rate, %", low, high, ticks),
        y=Axis("false non-match rate, %", low, high, ticks),
        top=top_margin(names),
    )
    chart.line([(low, low), (high, high)], "#9a9a9a", "1 4")
    for number, (each, name) in enumerate(zip(curves, names, strict=True)):
        across, down = det_points(each)
        inside = [
            (x, y) for x, y in zip(across.tolist(), down.tolist(), strict=True) if max(x, y) <= high
        ]
        label = name if len(names) > 1 else ""
        chart.line(inside, *line_style(number), label)
    return chart.render()


def folds(found: AccuracyResult) -> Markup:
    """Return the accuracy of every fold around their mean."""
    values = [100 * value for value in found.fold_accuracy]
    mean = float(np.mean(values))
    low = max(0.0, math.floor((min(values) - 0.25) * 2) / 2)
    names = tuple((float(k), str(k)) for k in range(1, len(values) + 1))
    chart = Chart(
        title="Accuracy by fold",
        description=f"Folds range from {min(values):.2f} to {max(values):.2f} percent "
        f"around {mean:.2f}.",
        x=Axis("fold", 0.5, len(values) + 0.5, names),
        y=linear_axis("accuracy, %", low, 100.0),
    )
    chart.level(mean, f"mean {mean:.2f} %")
    for number, value in enumerate(values, 1):
        chart.dot(number, value, BLUE, 5)
    return chart.render()


def _tar_at(points: Curve, fmr: float) -> float:
    within = np.flatnonzero(points.fmr <= fmr)
    return float(points.tar[within[0]]) if within.size else 0.0


def _told(runs: Sequence[Scored], curves: Sequence[Curve]) -> str:
    told = [
        f"{run.model} accepts {100 * _tar_at(points, 1e-2):.1f} percent of genuine pairs at a "
        "false match rate of one percent"
        for run, points in zip(runs, curves, strict=True)
    ]
    return "; ".join(told) + "."
