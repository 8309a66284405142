"""Two models on the same pairs: differences that resample people once for both, and who is right.

Every accuracy is the estimate that the report quotes under the same protocol, so that the
difference of a comparison is the difference of two reports.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onnxfr.errors import MetricError
from onnxfr.evaluators.scored import Scored
from onnxfr.evaluators.verification_results import accuracy_by_folds
from onnxfr.metrics.bootstrap import Statistic, bootstrap_difference
from onnxfr.metrics.protocols import AccuracyResult, fixed_accuracy, oracle_accuracy
from onnxfr.metrics.significance import mcnemar
from onnxfr.metrics.thresholds import rate_label
from onnxfr.metrics.weighted import weighted_fnmr_at_fmr, weighted_kfold_accuracy, weighted_rate

Bools = NDArray[np.bool_]
_ONE_KIND = "genuine and impostor pairs with a score in both runs are needed to compare them"


@dataclass(frozen=True)
class Difference:
    """One metric in both runs; ``difference`` is B minus A."""

    metric: str
    condition: str
    protocol: str
    a: float
    b: float
    difference: float
    low: float | None
    high: float | None
    interval: str


@dataclass(frozen=True)
class Duel:
    """Which pairs only one of two models decides correctly (McNemar)."""

    pairs: int
    only_a: int
    only_b: int
    p_value: float


@dataclass(frozen=True)
class _Judged:
    """Two accuracies under one protocol: the same estimates as a report's tidy results."""

    protocol: str
    condition: str
    values: tuple[float, float]
    correct: tuple[Bools, Bools]
    statistics: Sequence[Statistic]

    @classmethod
    def make(
        cls,
        protocol: str,
        condition: str,
        ours: AccuracyResult,
        theirs: AccuracyResult,
        statistics: Sequence[Statistic] = (),
    ) -> _Judged:
        """Return both; without statistics of their own thresholds stay while people are drawn."""
        return cls(
            protocol,
            condition,
            (ours.accuracy.value, theirs.accuracy.value),
            (ours.correct, theirs.correct),
            statistics or [weighted_rate(ours.correct), weighted_rate(theirs.correct)],
        )


@dataclass(frozen=True)
class PairedComparison:
    """Two models on the pairs both have judged; ``note`` says why there are no differences."""

    model_a: str
    model_b: str
    data: str
    shared: int
    differences: tuple[Difference, ...]
    duels: dict[str, Duel]
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


def compare_pairs(a: Scored, b: Scored) -> PairedComparison:
    """Compare two models on pairs that both have, in the same order."""
    nothing = PairedComparison(a.model, b.model, a.data, a.pair.size, (), {}, _ONE_KIND)
    if not (a.complete and b.complete):
        return nothing
    resolved = [target for target in a.targets if a.resolves(target)]
    judged = [*_by_folds(a, b), *_at_targets(a, b, resolved)] or [_at_best(a, b)]
    differences = [
        _difference(a, "accuracy", each.condition, each.protocol, each.statistics, each.values)
        for each in judged
    ]
    for target in resolved:
        statistics = [
            _accepted(weighted_fnmr_at_fmr(s.scores, s.same, target, rejected=s.rejected))
            for s in (a, b)
        ]
        values = (a.at(target).tar.value, b.at(target).tar.value)
        condition = f"fmr={rate_label(target)}"
        differences.append(_difference(a, "tar", condition, "fmr", statistics, values))
    right_a, right_b = judged[0].correct
    duels = {
        name: _duel(right_a[mask], right_b[mask])
        for name, mask in (
            ("all", np.ones(a.pair.size, dtype=np.bool_)),
            ("genuine", a.same),
            ("impostor", ~a.same),
        )
        if mask.any()
    }
    return replace(nothing, differences=tuple(differences), duels=duels, note="")


def _by_folds(a: Scored, b: Scored) -> Iterator[_Judged]:
    """Yield the cross-validated accuracies, the mean over folds as the report quotes them."""
    ours, theirs = accuracy_by_folds(a), accuracy_by_folds(b)
    if ours is not None and theirs is not None:
        statistics = [
            weighted_kfold_accuracy(s.scores, s.same, fold=s.fold, rejected=s.rejected)
            for s in (a, b)
        ]
        yield _Judged.make(ours.protocol, "", ours, theirs, statistics)


def _at_targets(a: Scored, b: Scored, targets: Sequence[float]) -> Iterator[_Judged]:
    """Yield the accuracies at the thresholds of false-match rates, the one asked for first."""
    asked = a.operating_point().target
    for target in sorted(targets, key=lambda target: target != asked):
        ours, theirs = (
            fixed_accuracy(s.scores, s.same, s.at(target).threshold, rejected=s.rejected)
            for s in (a, b)
        )
        yield _Judged.make("fmr", f"fmr={rate_label(target)}", ours, theirs)


def _at_best(a: Scored, b: Scored) -> _Judged:
    """Return the accuracies at the best thresholds: all that so few pairs allow."""
    ours, theirs = (oracle_accuracy(s.scores, s.same, rejected=s.rejected) for s in (a, b))
    return _Judged.make(ours.protocol, "", ours, theirs)


def _difference(
    a: Scored,
    metric: str,
    condition: str,
    protocol: str,
    statistics: Sequence[Statistic],
    values: tuple[float, float],
) -> Difference:
    low = high = None
    interval = ""
    if a.first is not None and a.second is not None:
        try:
            found = bootstrap_difference(
                statistics[1], statistics[0], a.first, a.second, seed=0, resamples=1000
            )
            low, high, interval = found.low, found.high, found.method
        except MetricError:
            pass
    before, after = float(values[0]), float(values[1])
    return Difference(
        metric, condition, protocol, before, after, after - before, low, high, interval
    )


def _accepted(refused: Statistic) -> Statistic:
    return lambda weights: 1.0 - refused(weights)


def _duel(a: Bools, b: Bools) -> Duel:
    test = mcnemar(a, b)
    return Duel(a.size, int((a & ~b).sum()), int((b & ~a).sum()), test.p_value)
