"""Charts of attacks: success over the budget and over the steps taken."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from onnxfr.budgets import write_eps
from onnxfr.evaluators.outcomes import GREY, Attacked
from onnxfr.evaluators.report.legend import top_margin
from onnxfr.evaluators.report.svg import Axis, Chart, line_style, linear_axis
from onnxfr.metrics.attack_success import success_curve

GOALS = {"dodge": "Dodging", "impersonate": "Impersonation"}
NORMS = {"linf": "largest change", "l2": "root mean square change"}
_SHARE = Axis("share of pairs broken", 0.0, 1.0, tuple((k / 4, f"{25 * k} %") for k in range(5)))
_POINTS = 120


def budget_curves(groups: Sequence[Attacked]) -> Markup:
    """Return success over budget from the smallest changes, with pointwise intervals."""
    finite = np.concatenate([g.cost[np.isfinite(g.cost)] for g in groups] or [np.zeros(0)])
    largest = float(np.quantile(finite, 0.98)) * 1.15 if finite.size else 1.0
    first = groups[0]
    chart = Chart(
        f"{GOALS[first.goal]}: success over budget, {first.norm}",
        "Share of pairs whose decision is wrong, for changes up to a size; the bands are 95 % "
        "intervals, the start is the share wrong without an attack.",
        linear_axis(f"{NORMS[first.norm]}, grey levels", 0.0, max(largest, 0.1)),
        _SHARE,
        top=top_margin([group.method for group in groups]),
    )
    budgets = np.linspace(0.0, max(largest, 0.1), _POINTS)
    for k, group in enumerate(groups):
        curve = success_curve(group.cost, budgets)
        colour, dash = line_style(k)
        chart.band(_points(budgets, curve.low), _points(budgets, curve.high), colour)
        chart.line(_points(budgets, curve.asr), colour, dash, group.method)
    return chart.render()


def step_curves(groups: Sequence[Attacked]) -> Markup:
    """Return success over gradients asked at fixed budgets: whether the attack had converged."""
    first = groups[0]
    names = [f"{group.method} {write_eps(group.eps or 0.0)}" for group in groups]
    most = max(float(group.column("gradients").max()) for group in groups)
    chart = Chart(
        f"{GOALS[first.goal]}: success over steps, {first.norm}",
        "Share of pairs won after so many gradients; a curve still rising at its end is an attack "
        "that had not converged.",
        linear_axis("gradients asked per pair", 0.0, max(most, 1.0), 0),
        _SHARE,
        top=top_margin(names),
    )
    steps = np.arange(0.0, most + 1)
    for k, group in enumerate(groups):
        when = group.column("gradients_to_win")
        curve = success_curve(np.where(np.isnan(when), np.inf, when), steps)
        colour, dash = line_style(k)
        chart.band(_points(steps, curve.low), _points(steps, curve.high), colour)
        chart.line(_points(steps, curve.asr), colour, dash, names[k])
    return chart.render()


def _points(x: NDArray[np.float64], y: NDArray[np.float64]) -> list[tuple[float, float]]:
    return [(float(a), float(b)) for a, b in zip(x, y, strict=True)]


def grey(value: float | None) -> str:
    """Write a distance in grey levels."""
    if value is None or not np.isfinite(value):
        return "never"
    return f"{value:.2f}" if value < GREY / 10 else f"{value:.0f}"
