"""One-to-one error rates in the vocabulary of ISO/IEC 19795-1.

FMR and FNMR speak of comparisons that happened; FAR and FRR also of those that failed. Everything
that sweeps the threshold treats a failed pair as a non-match: a genuine failure is an error of the
system, an impostor failure is not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from onnxfr.errors import MetricError
from onnxfr.metrics._checks import Floats, both_classes, fraction, pair_scores
from onnxfr.metrics.intervals import Estimate, rate, wilson
from onnxfr.metrics.thresholds import Resolution, Threshold, resolution, threshold_at_fmr


@dataclass(frozen=True)
class ErrorRates:
    """The rates of a verifier at one threshold; a class without pairs has NaN with [0, 1]."""

    fmr: Estimate
    fnmr: Estimate
    fta: Estimate
    far: Estimate
    frr: Estimate


@dataclass(frozen=True)
class Curve:
    """FMR and FNMR at every threshold that matters, ascending; the first, -inf, accepts all."""

    threshold: Floats
    fmr: Floats
    fnmr: Floats
    genuine: int
    impostor: int

    @property
    def tar(self) -> Floats:
        """True accept rate, ``1 - FNMR``: the ordinate of a ROC."""
        return 1.0 - self.fnmr


@dataclass(frozen=True)
class OperatingPoint:
    """What the verifier does at the threshold that meets a target FMR."""

    target: float
    threshold: Threshold
    fmr: Estimate
    fnmr: Estimate
    resolution: Resolution

    @property
    def tar(self) -> Estimate:
        """True accept rate, TAR@FMR."""
        return self.fnmr.complement()


@dataclass(frozen=True)
class GeneralisedRates:
    """System-level rates once failures to acquire and to enrol are paid for."""

    far: float
    frr: float
    gfar: float
    gfrr: float


def error_rates(
    scores: ArrayLike,
    same: ArrayLike,
    threshold: Threshold | float,
    rejected: ArrayLike | None = None,
    level: float = 0.95,
) -> ErrorRates:
    """Return FMR, FNMR, FTA, FAR and FRR at one threshold."""
    values, genuine, refused = pair_scores(scores, same, rejected)
    limit = threshold.value if isinstance(threshold, Threshold) else float(threshold)
    if np.isnan(limit):
        raise MetricError("the threshold is NaN")
    accepted = values > limit
    return ErrorRates(
        fmr=rate(accepted[~genuine & ~refused], level),
        fnmr=rate(~accepted[genuine & ~refused], level),
        fta=rate(refused, level),
        far=rate(accepted[~genuine], level),
        frr=rate(~accepted[genuine], level),
    )


def generalised_rates(fmr: float, fnmr: float, fta: float, fte: float = 0.0) -> GeneralisedRates:
    """Combine matching errors with failures to acquire (per attempt) and to enrol (per person)."""
    for name, value in (("FMR", fmr), ("FNMR", fnmr), ("FTA", fta), ("FTE", fte)):
        if not 0.0 <= value <= 1.0:
            raise MetricError(f"{name} must lie in [0, 1], got {value}")
    far = fmr * (1 - fta)
    frr = fta + fnmr * (1 - fta)
    return GeneralisedRates(far, frr, far * (1 - fte), fte + (1 - fte) * frr)


def curve(scores: ArrayLike, same: ArrayLike, rejected: ArrayLike | None = None) -> Curve:
    """Return FMR and FNMR at every observed score: the material of ROC and DET plots."""
    values, genuine, _ = pair_scores(scores, same, rejected)
    both_classes(genuine, "a ROC or DET curve")
    thresholds = np.concatenate([[-np.inf], np.unique(values[np.isfinite(values)])])
    impostor, mated = np.sort(values[~genuine]), np.sort(values[genuine])
    return Curve(
        threshold=thresholds,
        fmr=(impostor.size - np.searchsorted(impostor, thresholds, "right")) / impostor.size,
        fnmr=np.searchsorted(mated, thresholds, "right") / mated.size,
        genuine=mated.size,
        impostor=impostor.size,
    )


def det_points(points: Curve) -> tuple[Floats, Floats]:
    """Return the probits of FMR and FNMR; 0 and 1 are drawn half an observation inside."""
    edge_fmr, edge_fnmr = 0.5 / points.impostor, 0.5 / points.genuine
    return (
        special.ndtri(np.clip(points.fmr, edge_fmr, 1 - edge_fmr)),
        special.ndtri(np.clip(points.fnmr, edge_fnmr, 1 - edge_fnmr)),
    )


def eer(
    scores: ArrayLike, same: ArrayLike, rejected: ArrayLike | None = None, level: float = 0.95
) -> Estimate:
    """Return the equal error rate, interpolated between the two operating points around it.

    The interval is Wilson's with n the smaller class: the rate is measured on both at once.
    """
    points = curve(scores, same, rejected)
    gap = points.fmr - points.fnmr
    if gap[0] < 0:
        raise MetricError("no threshold equals FMR and FNMR: too many pairs were rejected")
    last = int(np.flatnonzero(gap >= 0)[-1])
    value = float(points.fmr[last])
    if gap[last] > 0:
        share = gap[last] / (gap[last] - gap[last + 1])
        value += float(share * (points.fmr[last + 1] - points.fmr[last]))
    n = min(points.genuine, points.impostor)
    bounds = wilson(value * n, n, level)
    return Estimate(value, bounds.low, bounds.high, n, "wilson-min-class", level)


def at_fmr(
    scores: ArrayLike,
    same: ArrayLike,
    target: float,
    rejected: ArrayLike | None = None,
    *,
    data: str = "data",
    level: float = 0.95,
) -> OperatingPoint:
    """Return FNMR and TAR at the lowest threshold whose FMR does not exceed ``target``."""
    values, genuine, refused = pair_scores(scores, same, rejected)
    both_classes(genuine, "TAR@FMR")
    threshold = threshold_at_fmr(values, genuine, target, rejected=refused, data=data)
    accepted = values > threshold.value
    return OperatingPoint(
        target=target,
        threshold=threshold,
        fmr=rate(accepted[~genuine], level),
        fnmr=rate(~accepted[genuine], level),
        resolution=resolution(target, int((~genuine).sum())),
    )


def fmr100(
    scores: ArrayLike, same: ArrayLike, rejected: ArrayLike | None = None, level: float = 0.95
) -> Estimate:
    """Return the lowest FNMR at FMR <= 1/100."""
    return at_fmr(scores, same, 1 / 100, rejected, level=level).fnmr


def fmr1000(
    scores: ArrayLike, same: ArrayLike, rejected: ArrayLike | None = None, level: float = 0.95
) -> Estimate:
    """Return the lowest FNMR at FMR <= 1/1000."""
    return at_fmr(scores, same, 1 / 1000, rejected, level=level).fnmr


def zero_fmr(
    scores: ArrayLike, same: ArrayLike, rejected: ArrayLike | None = None, level: float = 0.95
) -> Estimate:
    """Return the lowest FNMR at which no impostor pair is accepted."""
    values, genuine, _ = pair_scores(scores, same, rejected)
    both_classes(genuine, "ZeroFMR")
    return rate(values[genuine] <= values[~genuine].max(), level)


def d_prime(scores: ArrayLike, same: ArrayLike, rejected: ArrayLike | None = None) -> float:
    """Return the separation of the two score distributions in pooled standard deviations.

    Rejected pairs have no score and are left out. Two constant classes give 0 or infinity.
    """
    values, genuine, refused = pair_scores(scores, same, rejected)
    mated, impostor = values[genuine & ~refused], values[~genuine & ~refused]
    if not mated.size or not impostor.size:
        raise MetricError("d' needs scored pairs of both classes")
    gap = abs(mated.mean() - impostor.mean())
    pooled = np.sqrt((mated.var() + impostor.var()) / 2)
    if pooled == 0:
        return float("inf") if gap > 0 else 0.0
    return float(gap / pooled)


def _ranks(values: Floats) -> Floats:
    _, group, size = np.unique(values, return_inverse=True, return_counts=True)
    middle: Floats = np.cumsum(size) - (size - 1) / 2
    return middle[group]


def auc(
    scores: ArrayLike, same: ArrayLike, rejected: ArrayLike | None = None, level: float = 0.95
) -> Estimate:
    """Return the area under the ROC with DeLong's interval (1988); ties count one half."""
    values, genuine, _ = pair_scores(scores, same, rejected)
    both_classes(genuine, "the area under the ROC")
    fraction(level, "level")
    ranks = _ranks(values)
    mated, impostor = int(genuine.sum()), int((~genuine).sum())
    beaten = (ranks[genuine] - _ranks(values[genuine])) / impostor
    losing = 1 - (ranks[~genuine] - _ranks(values[~genuine])) / mated
    value, n = float(beaten.mean()), min(mated, impostor)
    variance = 0.0
    if n > 1:
        variance = float(beaten.var(ddof=1) / mated + losing.var(ddof=1) / impostor)
    if variance == 0:
        # DeLong's width collapses at perfect separation, where doubt is all that is left.
        bounds = wilson(min(1.0, value) * n, n, level)
        return Estimate(value, bounds.low, bounds.high, n, "wilson-min-class", level)
    spread = float(special.ndtri(0.5 + level / 2)) * variance**0.5
    low, high = max(0.0, value - spread), min(1.0, value + spread)
    return Estimate(value, low, high, values.size, "delong", level)
