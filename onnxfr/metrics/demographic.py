"""Differences between groups of people, of accuracy and of robustness alike.

FDR is de Freitas Pereira and Marcel's fairness discrepancy rate, the Gini form follows GARBE
(Howard et al. 2022). Both compare groups at one common threshold, as a deployed system would.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from onnxfr.errors import MetricError
from onnxfr.metrics._checks import flags, floats, vector
from onnxfr.metrics.intervals import Estimate, rate
from onnxfr.metrics.thresholds import Threshold
from onnxfr.metrics.verification import ErrorRates, error_rates


@dataclass(frozen=True)
class GroupGap:
    """A rate in every group, the highest one, and how far apart the groups are."""

    per_group: dict[str, Estimate]
    worst: str
    gap: float
    gini: float


@dataclass(frozen=True)
class Fairness:
    """Error rates of each group at one threshold and their two summary indices.

    ``fdr`` is 1 and ``garbe`` 0 when all groups fare alike.
    """

    per_group: dict[str, ErrorRates]
    fdr: float
    garbe: float
    alpha: float


def _groups(group: ArrayLike, size: int) -> dict[str, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    labels = vector(group, "group").astype(str)
    if labels.size != size:
        raise MetricError(f"group must have {size} elements like the others, got {labels.size}")
    names = np.unique(labels)
    if names.size < 2:
        raise MetricError("comparing groups needs at least two of them")
    return {str(name): labels == name for name in names}


def gini(rates: ArrayLike) -> float:
    """Return the Gini coefficient of group rates with the small-sample factor n/(n-1)."""
    values = floats(rates, "rates")
    if values.size < 2 or not ((values >= 0) & np.isfinite(values)).all():
        raise MetricError("the Gini coefficient needs at least two non-negative rates")
    if values.max() == 0:
        return 0.0
    # Scale does not matter to the coefficient, but the smallest floats have no mean.
    values = values / values.max()
    spread = np.abs(values[:, None] - values[None, :]).sum()
    n = values.size
    return float(n / (n - 1) * spread / (2 * n * n * values.mean()))


def group_gap(hits: ArrayLike, group: ArrayLike, level: float = 0.95) -> GroupGap:
    """Return any yes/no outcome (attack won, falsely rejected...) per group, and the worst."""
    happened = flags(hits, "hits")
    per_group = {
        name: rate(happened[mask], level) for name, mask in _groups(group, happened.size).items()
    }
    values = [estimate.value for estimate in per_group.values()]
    worst = max(per_group, key=lambda name: per_group[name].value)
    return GroupGap(per_group, worst, max(values) - min(values), gini(values))


def fairness(
    scores: ArrayLike,
    same: ArrayLike,
    group: ArrayLike,
    threshold: Threshold | float,
    *,
    rejected: ArrayLike | None = None,
    alpha: float = 0.5,
    level: float = 0.95,
) -> Fairness:
    """Return per-group error rates, FDR and GARBE; ``alpha`` weighs false matches.

    Rejected pairs count as non-matches (FAR and FRR are compared), so a group the detector fails
    is not made to look well served. Every group needs genuine and impostor pairs.
    """
    if not 0.0 <= alpha <= 1.0:
        raise MetricError(f"alpha must lie in [0, 1], got {alpha}")
    values, labels = floats(scores, "scores"), flags(same, "same")
    refused = flags(
        np.zeros(values.size) if rejected is None else rejected, "rejected", values.size
    )
    if labels.size != values.size:
        raise MetricError(f"same must have {values.size} elements, got {labels.size}")
    per_group = {
        name: error_rates(values[mask], labels[mask], threshold, refused[mask], level)
        for name, mask in _groups(group, values.size).items()
    }
    lacking = [n for n, rates in per_group.items() if 0 in (rates.far.n, rates.frr.n)]
    if lacking:
        raise MetricError(f"groups without genuine or without impostor pairs: {lacking}")
    far = np.array([rates.far.value for rates in per_group.values()])
    frr = np.array([rates.frr.value for rates in per_group.values()])
    fdr = 1 - (alpha * np.ptp(far) + (1 - alpha) * np.ptp(frr))
    garbe = alpha * gini(far) + (1 - alpha) * gini(frr)
    return Fairness(per_group, float(fdr), float(garbe), alpha)
