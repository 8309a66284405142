"""Two runs side by side: what changed, by how much, and whether chance could explain it.

Where both runs judged the same pairs the difference is paired: people are resampled once for both
models, and McNemar's test looks at the pairs only one of them gets right. Everything else is
compared by Newcombe's interval, which treats the runs as independent and so errs on the wide side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onnxfr.errors import MetricError, SpecError
from onnxfr.evaluators.base import Result
from onnxfr.evaluators.report.page import Content
from onnxfr.evaluators.scored import Scored, split
from onnxfr.evaluators.verification_results import accuracy_by_folds
from onnxfr.metrics.bootstrap import Statistic, bootstrap_difference
from onnxfr.metrics.protocols import fixed_accuracy
from onnxfr.metrics.significance import mcnemar
from onnxfr.metrics.thresholds import rate_label
from onnxfr.metrics.weighted import weighted_fnmr_at_fmr, weighted_kfold_accuracy, weighted_rate

Bools = NDArray[np.bool_]


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
class PairedComparison:
    """Two models on the pairs both have judged."""

    model_a: str
    model_b: str
    data: str
    shared: int
    differences: tuple[Difference, ...]
    duels: dict[str, Duel]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


def compare_paired(a: Content, b: Content) -> list[PairedComparison]:
    """Compare the verification records of two runs, model by model, on their shared pairs."""
    if "verification" not in a.views or "verification" not in b.views:
        return []
    names = match_models(a, b)
    ours, theirs = split(a.views["verification"].records), split(b.views["verification"].records)
    found = []
    for left in ours:
        for right in theirs:
            if names.get(left.model) == right.model and left.data == right.data:
                shared, other = _share(left, right)
                if shared is not None and other is not None:
                    found.append(_compare(shared, other))
    return found


def compare_results(a: Content, b: Content) -> list[tuple[Result, Result, Difference]]:
    """Compare every tidy result that both runs have."""
    names = match_models(a, b)
    theirs = {_key(result, result.model): result for result in b.results()}
    found = []
    for result in a.results():
        other = theirs.get(_key(result, names.get(result.model, "")))
        if other is None or result.value is None or other.value is None:
            continue
        low, high = _newcombe(result, other)
        found.append(
            (
                result,
                other,
                Difference(
                    result.metric,
                    result.condition,
                    result.protocol,
                    result.value,
                    other.value,
                    other.value - result.value,
                    low,
                    high,
                    "newcombe" if low is not None else "",
                ),
            )
        )
    return found


def as_results(
    pairs: Sequence[tuple[Result, Result, Difference]], paired: Sequence[PairedComparison]
) -> list[Result]:
    """Return the differences as results, paired ones where there are any."""
    better = {
        (each.model_b, each.data, d.metric, d.condition, _way(d.protocol)): d
        for each in paired
        for d in each.differences
    }
    found = []
    for _, b, plain in pairs:
        best = better.get((b.model, b.data, b.metric, b.condition, _way(b.protocol)), plain)
        found.append(replace(b, value=best.difference, low=best.low, high=best.high))
    return found


def _way(protocol: str) -> str:
    # Shared pairs may span fewer folds than either run has.
    return protocol.rstrip("0123456789")


def match_models(a: Content, b: Content) -> dict[str, str]:
    """Return which model of B each model of A is compared with."""
    ours = [model["name"] for model in a.manifest["models"]]
    theirs = [model["name"] for model in b.manifest["models"]]
    common = [name for name in ours if name in theirs]
    if common:
        return {name: name for name in common}
    if len(ours) == len(theirs) == 1:
        return {ours[0]: theirs[0]}
    raise SpecError(
        f"the runs share no model name: A has {', '.join(ours)}, B has {', '.join(theirs)}; "
        "compare runs of one model each, or of models with the same names"
    )


def _key(result: Result, model: str) -> tuple[str, ...]:
    r = result
    parts = (r.evaluator, r.method, r.goal, r.norm, r.condition, r.metric, r.data, r.protocol)
    return (model, *parts)


def _share(a: Scored, b: Scored) -> tuple[Scored | None, Scored | None]:
    """Return both restricted to the pairs they have in common, in A's order."""
    place = {pair: row for row, pair in enumerate(b.pair.tolist())}
    rows = [row for row, pair in enumerate(a.pair.tolist()) if pair in place]
    others = [place[pair] for pair in a.pair[rows].tolist()]
    if not rows:
        return None, None
    if (a.same[rows] != b.same[others]).any():
        raise SpecError(
            f"the runs disagree on which pairs of {a.data} are genuine; they used different lists"
        )
    return a.take(rows), b.take(others)


def _compare(a: Scored, b: Scored) -> PairedComparison:
    protocol, right_a, right_b = _decisions(a, b)
    differences = []
    if protocol.startswith("kfold"):
        statistics = [
            weighted_kfold_accuracy(s.scores, s.same, fold=s.fold, rejected=s.rejected)
            for s in (a, b)
        ]
    else:
        statistics = [weighted_rate(right_a), weighted_rate(right_b)]
    differences.append(
        _difference(a, "accuracy", "", protocol, statistics, (right_a.mean(), right_b.mean()))
    )
    for target in a.targets:
        if a.complete and b.complete and a.resolves(target):
            points = (a.at(target), b.at(target))
            statistics = [
                _accepted(weighted_fnmr_at_fmr(s.scores, s.same, target, rejected=s.rejected))
                for s in (a, b)
            ]
            values = (points[0].tar.value, points[1].tar.value)
            condition = f"fmr={rate_label(target)}"
            differences.append(_difference(a, "tar", condition, "fmr", statistics, values))
    duels = {
        name: _duel(right_a[mask], right_b[mask])
        for name, mask in (
            ("all", np.ones(a.pair.size, dtype=np.bool_)),
            ("genuine", a.same),
            ("impostor", ~a.same),
        )
        if mask.any()
    }
    return PairedComparison(a.model, b.model, a.data, a.pair.size, tuple(differences), duels)


def _decisions(a: Scored, b: Scored) -> tuple[str, Bools, Bools]:
    """Return under which protocol, and which pairs each model decides correctly."""
    ours, theirs = accuracy_by_folds(a), accuracy_by_folds(b)
    if ours is not None and theirs is not None:
        return ours.protocol, ours.correct, theirs.correct
    if not (a.complete and b.complete):
        raise MetricError(
            f"{a.model} and {b.model} share too few scored pairs of both kinds to compare"
        )
    judged = [
        fixed_accuracy(s.scores, s.same, s.operating_point().threshold, rejected=s.rejected)
        for s in (a, b)
    ]
    return "fmr", judged[0].correct, judged[1].correct


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


def _newcombe(a: Result, b: Result) -> tuple[float | None, float | None]:
    if None in (a.value, a.low, a.high, b.value, b.low, b.high):
        return None, None
    assert a.value is not None and a.low is not None and a.high is not None
    assert b.value is not None and b.low is not None and b.high is not None
    difference = b.value - a.value
    down = ((b.value - b.low) ** 2 + (a.high - a.value) ** 2) ** 0.5
    up = ((b.high - b.value) ** 2 + (a.value - a.low) ** 2) ** 0.5
    return difference - down, difference + up
