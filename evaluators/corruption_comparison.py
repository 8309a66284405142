"""Models of one run side by side: which conditions tell them apart, and by how much.

Every further model is compared with the first. McNemar's test looks at each condition's pairs that
only one of the two decides correctly; Holm's correction runs over all conditions and all models.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from onnxfr.evaluators.base import Result
from onnxfr.evaluators.corruption_sheet import Sheet
from onnxfr.evaluators.corruption_table import Floats
from onnxfr.metrics.intervals import Estimate
from onnxfr.metrics.significance import holm, mcnemar

Line = NDArray[np.intp]
"""The conditions of one corruption among those compared."""

Cells = list[tuple[int, int]]
"""Rows of the same condition in the tables of two models."""


def comparisons(sheets: Sequence[Sheet]) -> Iterator[Result]:
    """Yield every further model against the first one on the same data."""
    for data in dict.fromkeys(sheet.degraded.clean.data for sheet in sheets):
        first, *others = [sheet for sheet in sheets if sheet.degraded.clean.data == data]
        duels = [(other, cells) for other in others if (cells := _shared(first, other))]
        tests = [
            mcnemar(first.judged.correct[a], other.judged.correct[b])
            for other, cells in duels
            for a, b in cells
        ]
        adjusted = iter(holm([test.p_value for test in tests]).tolist() if tests else ())
        remaining = iter(tests)
        against = f"against={first.degraded.clean.model}"
        for other, cells in duels:
            for _, b in cells:
                at = other.degraded.conditions[b - 1]
                yield other.result(
                    "p_holm",
                    next(adjusted),
                    method=at.method,
                    condition=f"severity={at.severity},{against}",
                    n=next(remaining).n,
                )
            yield from _overall(first, other, cells, against)


def _shared(first: Sheet, other: Sheet) -> Cells:
    """Return the conditions both were judged under; none where their pairs differ."""
    if first.degraded.clean.pair.tolist() != other.degraded.clean.pair.tolist():
        return []
    known = {condition: 1 + at for at, condition in enumerate(first.degraded.conditions)}
    theirs = enumerate(other.degraded.conditions)
    return [(known[each], 1 + at) for at, each in theirs if each in known]


def _overall(first: Sheet, other: Sheet, cells: Cells, against: str) -> Iterator[Result]:
    """Yield the difference of the mean accuracies, and the ratio of errors to the first's."""
    averaged = set(other.degraded.averaged)
    used = [(a, b) for a, b in cells if other.degraded.conditions[b - 1].method in averaged]
    if not used:
        return
    ours, theirs = (list(rows) for rows in zip(*used, strict=True))
    gain = float(other.accuracy[theirs].mean() - first.accuracy[ours].mean())
    # Both were resampled with the same draws of people, so their difference is paired.
    draws = other.replicates[:, theirs].mean(axis=1) - first.replicates[:, ours].mean(axis=1)
    yield other.result("acc_cor_difference", other.estimate(gain, draws), condition=against)
    methods = [other.degraded.conditions[row - 1].method for row in theirs]
    lines = [np.flatnonzero([name == each for name in methods]) for each in dict.fromkeys(methods)]
    ratio = _error_ratio(other, theirs, first, ours, lines)
    yield other.result("mce", ratio, condition=against)


def _error_ratio(
    other: Sheet, theirs: list[int], first: Sheet, ours: list[int], lines: Sequence[Line]
) -> Estimate | None:
    """Return mCE: the mean over corruptions of error sums, each divided by the first model's."""

    def ratio(accuracy: Floats, baseline: Floats) -> Floats:
        sums = [
            np.stack([(1.0 - table[..., line]).sum(axis=-1) for line in lines], axis=-1)
            for table in (accuracy, baseline)
        ]
        with np.errstate(divide="ignore", invalid="ignore"):
            found: Floats = (sums[0] / sums[1]).mean(axis=-1)
        return found

    value = float(ratio(other.accuracy[theirs], first.accuracy[ours]))
    draws = ratio(other.replicates[:, theirs], first.replicates[:, ours])
    # Where the first model makes hardly an error, the ratio is undefined or a matter of luck.
    if not np.isfinite(value) or np.isfinite(draws).mean() < 0.9:
        return None
    return other.estimate(value, draws)
