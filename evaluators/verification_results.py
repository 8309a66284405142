"""Every number that follows from one model's scores on one pair set, with its interval.

A metric appears under its plain name with Wilson's interval; where the threshold was chosen on the
data, ``<metric>_by_identity`` repeats the value with the interval that resamples people instead of
pairs. What the data cannot resolve has the value None, never a number that looks measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from onnxfr.errors import MetricError
from onnxfr.evaluators.base import Result
from onnxfr.evaluators.scored import Scored, rate_by_identity
from onnxfr.metrics.api import api_rates
from onnxfr.metrics.demographic import fairness
from onnxfr.metrics.intervals import Estimate
from onnxfr.metrics.protocols import AccuracyResult, fixed_accuracy, kfold_accuracy, oracle_accuracy
from onnxfr.metrics.thresholds import Threshold, rate_label
from onnxfr.metrics.verification import auc, d_prime, eer, error_rates, zero_fmr
from onnxfr.metrics.weighted import (
    weighted_fnmr_at_fmr,
    weighted_kfold_accuracy,
    weighted_rate,
)


def results_of(scored: Scored, thresholds: Sequence[float] = ()) -> list[Result]:
    """Return the results of one model on one pair set, judged at further fixed thresholds too."""
    fixed = [*scored.card_thresholds, *(Threshold(value) for value in thresholds)]
    parts: tuple[Callable[[Scored], Iterator[Result]], ...] = (
        _counts,
        _kfold,
        _oracle,
        _curve_metrics,
        _targets,
        lambda each: _fixed(each, fixed),
        _refusals,
        _groups,
    )
    # Resampling is most of the work and leaves Python's lock alone.
    with ThreadPoolExecutor(2, thread_name_prefix="onnxfr-metrics") as pool:
        done = pool.map(lambda part: list(part(scored)), parts)
        return [result for results in done for result in results]


def accuracy_by_folds(scored: Scored) -> AccuracyResult | None:
    """Return the cross-validated accuracy, or None where the pair set has no folds."""
    if scored.fold is None or len(set(scored.fold.tolist())) < 2 or not scored.complete:
        return None
    try:
        return kfold_accuracy(
            scored.scores,
            scored.same,
            fold=scored.fold,
            rejected=scored.rejected,
            data=scored.label,
        )
    except MetricError:
        return None


def _result(
    scored: Scored,
    metric: str,
    estimate: Estimate | float | None,
    *,
    n: int = 0,
    condition: str = "",
    protocol: str = "",
    threshold: Threshold | None = None,
) -> Result:
    value = low = high = None
    if isinstance(estimate, Estimate):
        value, low, high, n = estimate.value, estimate.low, estimate.high, estimate.n
    elif estimate is not None:
        value = float(estimate)
    return Result(
        evaluator="verification",
        model=scored.model,
        method=scored.method,
        data=scored.data,
        metric=metric,
        value=_finite(value),
        low=_finite(low),
        high=_finite(high),
        n=n,
        condition=condition,
        protocol=protocol,
        threshold=None if threshold is None else threshold.value,
        threshold_origin="" if threshold is None else threshold.origin,
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _try(compute: Callable[[], Estimate | float]) -> Estimate | float | None:
    try:
        return compute()
    except MetricError:
        return None


def _counts(scored: Scored) -> Iterator[Result]:
    for name, count in (
        ("pairs", scored.pair.size),
        ("genuine_pairs", int(scored.same.sum())),
        ("impostor_pairs", scored.impostors),
        ("rejected_pairs", int(scored.rejected.sum())),
        ("unreadable_pairs", scored.unreadable),
    ):
        yield _result(scored, name, float(count), n=scored.pair.size)


def _kfold(scored: Scored) -> Iterator[Result]:
    found = accuracy_by_folds(scored)
    if found is None:
        return
    quote = partial(_result, scored, protocol=found.protocol, threshold=found.threshold)
    yield quote("accuracy", found.accuracy)
    yield quote("accuracy_std", found.std, n=len(found.fold_accuracy))
    people = rate_by_identity(
        scored,
        lambda: weighted_kfold_accuracy(
            scored.scores, scored.same, fold=scored.fold, rejected=scored.rejected
        ),
    )
    if people is not None:
        yield quote("accuracy_by_identity", people)


def _oracle(scored: Scored) -> Iterator[Result]:
    if not scored.complete:
        return
    found = oracle_accuracy(scored.scores, scored.same, rejected=scored.rejected, data=scored.label)
    yield _result(scored, "accuracy", found.accuracy, protocol="oracle", threshold=found.threshold)


def _curve_metrics(scored: Scored) -> Iterator[Result]:
    if not scored.complete:
        return
    values = (scored.scores, scored.same, scored.rejected)
    yield _result(scored, "eer", _try(lambda: eer(*values)))
    yield _result(scored, "auc", _try(lambda: auc(*values)))
    yield _result(scored, "zero_fmr", _try(lambda: zero_fmr(*values)))
    scored_pairs = int((~scored.rejected).sum())
    yield _result(scored, "d_prime", _try(lambda: d_prime(*values)), n=scored_pairs)


def _targets(scored: Scored) -> Iterator[Result]:
    if not scored.complete:
        return
    for target in scored.targets:
        condition = f"fmr={rate_label(target)}"
        if not scored.resolves(target):
            yield _result(scored, "tar", None, n=scored.impostors, condition=condition)
            continue
        point = scored.at(target)
        judged = fixed_accuracy(
            scored.scores, scored.same, point.threshold, rejected=scored.rejected
        )
        for metric, estimate in (
            ("tar", point.tar),
            ("fnmr", point.fnmr),
            ("fmr", point.fmr),
            ("accuracy", judged.accuracy),
        ):
            yield _result(
                scored,
                metric,
                estimate,
                condition=condition,
                protocol="fmr",
                threshold=point.threshold,
            )
        yield from _tar_by_identity(scored, target, condition, point.threshold)


def _tar_by_identity(
    scored: Scored, target: float, condition: str, threshold: Threshold
) -> Iterator[Result]:
    people = rate_by_identity(
        scored,
        lambda: weighted_fnmr_at_fmr(scored.scores, scored.same, target, rejected=scored.rejected),
        scored.same,
    )
    if people is not None:
        yield _result(
            scored,
            "tar_by_identity",
            people.complement(),
            condition=condition,
            protocol="fmr",
            threshold=threshold,
        )


def _fixed(scored: Scored, thresholds: Sequence[Threshold]) -> Iterator[Result]:
    for threshold in thresholds if scored.pair.size else ():
        judged = fixed_accuracy(scored.scores, scored.same, threshold, rejected=scored.rejected)
        rates = error_rates(scored.scores, scored.same, threshold, scored.rejected)
        condition = f"threshold={threshold.value:g}"
        for metric, estimate in (
            ("accuracy", judged.accuracy),
            ("fmr", rates.fmr),
            ("fnmr", rates.fnmr),
        ):
            yield _result(
                scored,
                metric,
                estimate,
                condition=condition,
                protocol="fixed",
                threshold=threshold,
            )
        people = rate_by_identity(scored, partial(weighted_rate, judged.correct))
        if people is not None:
            yield _result(
                scored,
                "accuracy_by_identity",
                people,
                condition=condition,
                protocol="fixed",
                threshold=threshold,
            )


def _refusals(scored: Scored) -> Iterator[Result]:
    if not scored.complete:
        return
    point = scored.operating_point()
    judged = fixed_accuracy(scored.scores, scored.same, point.threshold, rejected=scored.rejected)
    rates = error_rates(scored.scores, scored.same, point.threshold, scored.rejected)
    answers = api_rates(judged.correct & ~scored.rejected, scored.rejected)
    # A gate that asks for a rate must not be answered by one that too few impostors set.
    doubt = "" if scored.resolves(point.target) else "~unresolved"
    for metric, estimate in (
        ("rr", answers.rr),
        ("asa", answers.asa),
        ("aa", answers.aa),
        ("far", rates.far),
        ("frr", rates.frr),
    ):
        yield _result(
            scored,
            metric,
            estimate,
            condition=f"fmr={rate_label(point.target)}{doubt}",
            protocol="fmr",
            threshold=point.threshold,
        )


def _groups(scored: Scored) -> Iterator[Result]:
    if scored.group is None or not scored.complete or len(set(scored.group.tolist())) < 2:
        return
    threshold = scored.operating_point().threshold
    quote = partial(_result, scored, protocol="fmr", threshold=threshold)
    for name in np.unique(scored.group):
        mask = scored.group == name
        rates = error_rates(
            scored.scores[mask], scored.same[mask], threshold, scored.rejected[mask]
        )
        for metric, estimate in (("far", rates.far), ("frr", rates.frr), ("rr", rates.fta)):
            yield quote(metric, estimate, condition=f"group={name}")
    try:
        fair = fairness(
            scored.scores, scored.same, scored.group, threshold, rejected=scored.rejected
        )
    except MetricError:
        return
    for metric, value in (("fdr", fair.fdr), ("garbe", fair.garbe)):
        yield quote(metric, value, n=scored.pair.size)
