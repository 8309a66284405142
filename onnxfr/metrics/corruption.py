"""Accuracy under corruptions and appearance variations (OODFace's aggregates, and ours).

OODFace averages its corruption tables without the clean row and its variation tables with it;
both conventions are here because the printed averages differ by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from onnxfr.errors import MetricError
from onnxfr.metrics._checks import Floats

CHANCE = 0.5


@dataclass(frozen=True)
class CorruptionSummary:
    """Aggregates of a condition x severity table of accuracies (fractions)."""

    clean: float
    mean: float
    relative_error: float
    above_chance: float
    per_condition: dict[str, float]
    per_category: dict[str, float]
    per_severity: Floats


def _accuracy(value: float, name: str) -> float:
    if not 0.0 <= value <= 1.0:
        raise MetricError(f"{name} must be a fraction in [0, 1], got {value}")
    return float(value)


def relative_error(clean: float, accuracy: float) -> float:
    """Return RCE (or RVE), the share of clean accuracy that was lost; negative is a gain."""
    if _accuracy(clean, "clean accuracy") == 0.0:
        raise MetricError("relative error is undefined for a clean accuracy of 0")
    return (clean - _accuracy(accuracy, "accuracy")) / clean


def above_chance(clean: float, accuracy: float) -> float:
    """Return ``(acc - 1/2) / (clean - 1/2)``: 1 lost nothing, 0 is a coin toss.

    Where there are more pairs of one kind, one answer to all beats a coin: pass the mean of the
    accuracies of genuine and of impostor pairs, which it has one half of.
    """
    if _accuracy(clean, "clean accuracy") <= CHANCE:
        raise MetricError(f"the model is no better than chance when clean ({clean})")
    return (_accuracy(accuracy, "accuracy") - CHANCE) / (clean - CHANCE)


def corruption_ratio(accuracy: ArrayLike, baseline: ArrayLike) -> float:
    """Return mCE: mean over conditions of error sums, each divided by a baseline model's."""
    errors, reference = (
        1.0 - np.atleast_2d(np.asarray(table, dtype=np.float64)) for table in (accuracy, baseline)
    )
    if errors.shape != reference.shape or not np.isfinite(errors + reference).all():
        raise MetricError("both models need the same complete condition x severity table")
    if (reference.sum(axis=1) <= 0).any():
        raise MetricError("the baseline makes no error in some condition: the ratio is undefined")
    return float((errors.sum(axis=1) / reference.sum(axis=1)).mean())


def table_mean(clean: float, table: ArrayLike, *, include_clean: bool) -> float:
    """Return the printed average of a table; ``include_clean`` counts the clean row as one.

    False is OODFace's LFW-C (and ours), true its LFW-V.
    """
    conditions = np.atleast_2d(np.asarray(table, dtype=np.float64)).mean(axis=1)
    rows = np.append(conditions, clean) if include_clean else conditions
    return float(rows.mean())


def corruption_summary(
    clean: float,
    accuracy: ArrayLike,
    conditions: Sequence[str],
    categories: Mapping[str, Sequence[str]] | None = None,
    *,
    include_clean: bool = False,
) -> CorruptionSummary:
    """Summarise accuracies ``(conditions, severities)``; every cell must have been measured.

    They are of as many genuine as impostor pairs, see :func:`above_chance`.
    """
    table = np.asarray(accuracy, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] != len(conditions) or table.size == 0:
        raise MetricError(f"expected one row per condition ({len(conditions)}), got {table.shape}")
    if not ((table >= 0) & (table <= 1)).all():
        raise MetricError("accuracies must be fractions in [0, 1], without NaN")
    per_condition = dict(zip(conditions, table.mean(axis=1).tolist(), strict=True))
    per_category: dict[str, float] = {}
    for category, names in (categories or {}).items():
        unknown = [name for name in names if name not in per_condition]
        if unknown or not names:
            raise MetricError(f"category {category!r} has conditions not in the table: {unknown}")
        per_category[category] = float(np.mean([per_condition[name] for name in names]))
    mean = table_mean(clean, table, include_clean=include_clean)
    return CorruptionSummary(
        clean=clean,
        mean=mean,
        relative_error=relative_error(clean, mean),
        above_chance=above_chance(clean, mean) if clean > CHANCE else float("nan"),
        per_condition=per_condition,
        per_category=per_category,
        per_severity=table.mean(axis=0),
    )
