"""How often and how cheaply attacks win, under each of the conventions in print.

A cost (distance or queries) of NaN or infinity means the attack failed; such pairs stay in every
denominator and lie beyond every budget, unlike in scripts that drop them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from onnxfr.errors import MetricError
from onnxfr.metrics._checks import Floats, flags, floats, fraction
from onnxfr.metrics.intervals import Estimate, rate, wilson


@dataclass(frozen=True)
class AttackSuccess:
    """The three success rates of the literature, all from the same decisions."""

    asr_all: Estimate
    asr_clean_correct: Estimate
    robust_acc: Estimate


@dataclass(frozen=True)
class SuccessCurve:
    """Success rate at each budget, with a pointwise Wilson band."""

    budget: Floats
    asr: Floats
    low: Floats
    high: Floats
    n: int

    @property
    def accuracy(self) -> Floats:
        """Accuracy left at each budget, when clean errors have cost 0."""
        return 1.0 - self.asr


@dataclass(frozen=True)
class RobfrScore:
    """The numbers of RobFR's scoring script, on its own 0-255 scale."""

    median: float
    mean: float
    asr: float
    kept: int
    dropped: int


@dataclass(frozen=True)
class TransferSummary:
    """Means of a source x target success matrix; the diagonal (white-box) is left out."""

    mean: float
    source_strength: Floats
    target_weakness: Floats


def attack_success(
    won_clean: ArrayLike, won_attacked: ArrayLike, level: float = 0.95
) -> AttackSuccess:
    """Return the success rates of an attack from decisions before and after it.

    ``won_*`` is true where the verifier's decision is wrong. ``asr_all`` (RobFR, FACESEC) counts
    all pairs, ``asr_clean_correct`` (ARES, untargeted) only those right before the attack.
    """
    before = flags(won_clean, "won_clean")
    after = flags(won_attacked, "won_attacked", before.size)
    if before.size == 0:
        raise MetricError("no pairs: at least one attacked pair is needed")
    overall = rate(after, level)
    return AttackSuccess(overall, rate(after[~before], level), overall.complement())


def _costs(cost: ArrayLike) -> Floats:
    values = floats(cost, "cost")
    if values.size == 0:
        raise MetricError("no pairs: at least one attacked pair is needed")
    values[np.isnan(values)] = np.inf
    if (values < 0).any():
        raise MetricError("a cost (distance or queries) cannot be negative")
    return values


def success_curve(cost: ArrayLike, budgets: ArrayLike, level: float = 0.95) -> SuccessCurve:
    """Return the success rate at every budget from each pair's smallest winning cost."""
    values = np.sort(_costs(cost))
    limits = floats(budgets, "budgets")
    if np.isnan(limits).any() or np.isinf(limits).any():
        raise MetricError("budgets must be finite numbers")
    won = np.searchsorted(values, limits, "right")
    counts, where = np.unique(won, return_inverse=True)
    bands = [wilson(int(count), values.size, level) for count in counts]
    return SuccessCurve(
        budget=limits,
        asr=won / values.size,
        low=np.array([band.low for band in bands])[where],
        high=np.array([band.high for band in bands])[where],
        n=values.size,
    )


def median_cost(cost: ArrayLike, level: float = 0.95) -> Estimate:
    """Return the median cost, failures as +inf, with its distribution-free order interval."""
    fraction(level, "level")
    values = np.sort(_costs(cost))
    at_most = special.bdtr(np.arange(values.size + 1), values.size, 0.5)
    below = int(np.argmax(at_most >= (1 - level) / 2))
    low = float(values[below - 1]) if below > 0 else 0.0
    high = float(values[values.size - below]) if below > 0 else float("inf")
    return Estimate(float(np.median(values)), low, high, values.size, "order-statistics", level)


def success_auc(cost: ArrayLike, largest: float) -> float:
    """Return the area under the success curve from 0 to ``largest``, as a share of the whole."""
    if not 0 < largest < np.inf:
        raise MetricError(f"the largest budget must be positive and finite, got {largest}")
    return float(np.clip(1.0 - _costs(cost) / largest, 0.0, 1.0).mean())


def curve_auc(x: ArrayLike, y: ArrayLike) -> float:
    """Return the trapezoid area under measured points, divided by the range of ``x``."""
    at, value = floats(x, "x"), floats(y, "y")
    if at.size != value.size or at.size < 2:
        raise MetricError(f"a curve needs at least two points, got {at.size} and {value.size}")
    if not (np.isfinite(at).all() and np.isfinite(value).all() and (np.diff(at) > 0).all()):
        raise MetricError("a curve needs finite values at increasing x")
    return float(np.trapezoid(value, at) / (at[-1] - at[0]))


def robfr_score(distance: ArrayLike, won: ArrayLike) -> RobfrScore:
    """Return what RobFR's script prints: no rows of distance 0, ``sorted[n // 2]``, clip at 32.

    Distances are in grey levels (0-255). Rows of distance 0 are the pairs already wrong when
    clean, so dropping them hides clean errors; use ``median_cost`` for our own tables.
    """
    values = _costs(distance)
    success = flags(won, "won", values.size)
    kept = values != 0
    if not kept.any():
        raise MetricError("every distance is 0: RobFR's script has no row left to score")
    rest = np.sort(values[kept])
    return RobfrScore(
        median=float(rest[rest.size // 2]),
        mean=float(np.minimum(rest, 32.0).mean()),
        asr=float(success[kept].mean()),
        kept=int(rest.size),
        dropped=int(values.size - rest.size),
    )


def transfer_summary(matrix: ArrayLike) -> TransferSummary:
    """Return off-diagonal means of a square matrix, rows sources and columns targets."""
    table = np.asarray(matrix, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] != table.shape[1] or table.shape[0] < 2:
        raise MetricError(f"expected a square matrix of at least 2 models, got {table.shape}")
    if not np.isfinite(table).all():
        raise MetricError("the transfer matrix has cells that were not measured (NaN)")
    off = np.where(np.eye(table.shape[0], dtype=np.bool_), 0.0, table)
    others = table.shape[0] - 1
    return TransferSummary(
        mean=float(off.sum() / (others * table.shape[0])),
        source_strength=off.sum(axis=1) / others,
        target_weakness=off.sum(axis=0) / others,
    )
