"""Models of one run side by side: which conditions tell them apart, and by how much.

Every further model is compared with the first. McNemar's test looks at each condition's pairs that
only one of the two decides correctly; Holm's correction runs over all conditions and all models.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from onnxfr.errors import MetricError
from onnxfr.evaluators.base import Result
from onnxfr.evaluators.corruption_sheet import Sheet
from onnxfr.metrics.corruption import corruption_ratio
from onnxfr.metrics.significance import holm, mcnemar

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
    if len({len(line) for line in lines}) > 1:
        return
    errors = [
        np.stack([sheet.accuracy[rows][line] for line in lines])
        for sheet, rows in ((other, theirs), (first, ours))
    ]
    try:
        ratio = corruption_ratio(errors[0], errors[1])
    except MetricError:
        return
    yield other.result("mce", ratio, condition=against, n=other.degraded.clean.pair.size)
