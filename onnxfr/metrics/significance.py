"""Tests for "is this difference real": two models on the same pairs, or many over conditions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from onnxfr.errors import MetricError
from onnxfr.metrics._checks import Floats, flags, floats


@dataclass(frozen=True)
class Significance:
    """A test's statistic and two-sided p-value; ``n`` is what the test could use."""

    statistic: float
    p_value: float
    n: int
    method: str


@dataclass(frozen=True)
class PairwiseComparison:
    """Two columns compared, with the p-value adjusted for all comparisons made."""

    first: str
    second: str
    test: Significance
    adjusted: float


def mcnemar(
    correct_a: ArrayLike, correct_b: ArrayLike, method: Literal["exact", "mid-p"] = "exact"
) -> Significance:
    """Compare two models on the same pairs by those that only one of them gets right.

    The statistic is the smaller discordant count, ``n`` the sum of both; no discordant pair at all
    gives p = 1. Mid-p is less conservative and the better choice for few discordant pairs.
    """
    a = flags(correct_a, "correct_a")
    b = flags(correct_b, "correct_b", a.size)
    if a.size == 0 or method not in ("exact", "mid-p"):
        raise MetricError("McNemar needs at least one pair and method 'exact' or 'mid-p'")
    only_a, only_b = int((a & ~b).sum()), int((b & ~a).sum())
    n, smaller = only_a + only_b, min(only_a, only_b)
    if n == 0:
        return Significance(0.0, 1.0, 0, f"mcnemar-{method}")
    p = min(1.0, 2 * float(stats.binom.cdf(smaller, n, 0.5)))
    if method == "mid-p":
        half = float(stats.binom.pmf(smaller, n, 0.5))
        p = 1.0 if only_a == only_b else 2 * float(stats.binom.cdf(smaller, n, 0.5)) - half
    return Significance(float(smaller), p, n, f"mcnemar-{method}")


def _table(table: ArrayLike, columns: int) -> Floats:
    values = np.asarray(table, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] < columns or values.shape[0] < 2:
        raise MetricError(
            f"expected a table of at least 2 conditions x {columns} models, got {values.shape}"
        )
    if not np.isfinite(values).all():
        raise MetricError("the table has cells that were not measured (NaN)")
    return values


def friedman(table: ArrayLike) -> Significance:
    """Test whether at least one of three or more models (columns) ranks apart over conditions."""
    values = _table(table, 3)
    if (values == values[:, :1]).all():
        return Significance(0.0, 1.0, values.shape[0], "friedman")
    statistic, p = stats.friedmanchisquare(*values.T)
    return Significance(float(statistic), float(p), values.shape[0], "friedman")


def wilcoxon(first: ArrayLike, second: ArrayLike) -> Significance:
    """Signed-rank test of two models over the same conditions; zero differences are left out."""
    a, b = floats(first, "first"), floats(second, "second")
    if a.size != b.size or a.size == 0 or not np.isfinite(a - b).all():
        raise MetricError(f"expected two complete lists of equal length, got {a.size}, {b.size}")
    difference = a - b
    difference = difference[difference != 0]
    if difference.size == 0:
        return Significance(0.0, 1.0, 0, "wilcoxon")
    outcome = stats.wilcoxon(difference)
    return Significance(
        float(outcome.statistic), float(outcome.pvalue), int(difference.size), "wilcoxon"
    )


def holm(p_values: ArrayLike) -> Floats:
    """Return Holm's step-down adjusted p-values, in the order given."""
    p = floats(p_values, "p_values")
    if not ((p >= 0) & (p <= 1)).all():
        raise MetricError("p-values must lie in [0, 1], without NaN")
    order = np.argsort(p, kind="stable")
    raised = np.maximum.accumulate(p[order] * (p.size - np.arange(p.size)))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(raised, 1.0)
    return adjusted


def compare_all(table: ArrayLike, names: Sequence[str]) -> list[PairwiseComparison]:
    """Wilcoxon between every two models (columns) over conditions (rows), Holm-adjusted."""
    values = _table(table, 2)
    if len(names) != values.shape[1]:
        raise MetricError(f"expected {values.shape[1]} names, got {len(names)}")
    duels = list(combinations(range(len(names)), 2))
    tests = [wilcoxon(values[:, i], values[:, j]) for i, j in duels]
    adjusted = holm([test.p_value for test in tests])
    return [
        PairwiseComparison(names[i], names[j], test, float(p))
        for (i, j), test, p in zip(duels, tests, adjusted, strict=True)
    ]
