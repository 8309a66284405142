"""Thresholds beyond what the data can resolve, by extreme-value extrapolation. Flagged as such.

The highest impostor scores are fitted by a generalised Pareto tail (peaks over threshold) with
probability-weighted moments (Hosking and Wallis 1987), stable on the few hundred scores at hand. A
model of the tail is an assumption, not a measurement: never quote it without its interval, and
never where impostors of the same family, age or twins matter, for none were sampled.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from onnxfr.errors import MetricError
from onnxfr.metrics._checks import Floats, fraction, pair_scores
from onnxfr.metrics.intervals import Estimate
from onnxfr.metrics.thresholds import Resolution, Threshold, rate_label, resolution
from onnxfr.rng import stream

_LEAST_TAIL = 50


@dataclass(frozen=True)
class Extrapolation:
    """A modelled threshold; ``extrapolated`` is true where no data stand behind it."""

    threshold: Threshold
    interval: Estimate
    tail_start: float
    tail_size: int
    shape: float
    scale: float
    extrapolated: bool


def _fit(excess: Floats) -> tuple[Floats, Floats]:
    """Return shape and scale of each row of excesses."""
    ordered = np.sort(excess, axis=1)
    n = ordered.shape[1]
    share_above = (n - np.arange(1, n + 1) + 0.35) / n
    first, second = ordered.mean(axis=1), (ordered * share_above).mean(axis=1)
    gap = first - 2 * second
    return 2 - first / gap, 2 * first * second / gap


def _quantile(tail: float, target: float, shape: Floats, scale: Floats) -> Floats:
    ratio = np.log(tail / target)
    small = np.abs(shape) < 1e-8
    safe = np.where(small, 1.0, shape)
    quantile: Floats = scale * np.where(small, ratio, np.expm1(safe * ratio) / safe)
    return quantile


def extrapolate_threshold(
    scores: ArrayLike,
    same: ArrayLike,
    target: float,
    *,
    rejected: ArrayLike | None = None,
    tail: float = 0.05,
    data: str = "data",
    seed: int = 0,
    resamples: int = 500,
    level: float = 0.95,
) -> Extrapolation:
    """Return the threshold a fitted impostor tail gives at ``target``, with a bootstrap interval.

    ``tail`` is the share of impostor scores the model is fitted to; at least 50 are needed.
    """
    fraction(target, "the target FMR")
    fraction(tail, "tail")
    if target >= tail:
        raise MetricError(f"target {target} lies inside the tail {tail}: measure it instead")
    values, genuine, _ = pair_scores(scores, same, rejected)
    impostor = np.sort(values[~genuine])
    size = int(tail * impostor.size)
    if size < _LEAST_TAIL or not np.isfinite(impostor[-size - 1]):
        raise MetricError(
            f"a tail of {size} impostor scores is too short to model; at least {_LEAST_TAIL} "
            "scored ones are needed"
        )
    start = float(impostor[-size - 1])
    excess = impostor[-size:] - start
    if np.ptp(excess) == 0:
        raise MetricError("all scores of the impostor tail are equal: nothing to extrapolate")
    shape, scale = _fit(excess[None])
    share = size / impostor.size
    value = start + float(_quantile(share, target, shape, scale)[0])
    draws = stream(seed, "extreme-value").integers(0, size, (resamples, size))
    again = start + _quantile(share, target, *_fit(excess[draws]))
    low, high = np.quantile(again[np.isfinite(again)], [(1 - level) / 2, (1 + level) / 2])
    found = resolution(target, impostor.size)
    return Extrapolation(
        threshold=Threshold(value, f"{data}@fmr={rate_label(target)}~evt", target, found),
        interval=Estimate(value, float(low), float(high), size, "pareto-tail-bootstrap", level),
        tail_start=start,
        tail_size=size,
        shape=float(shape[0]),
        scale=float(scale[0]),
        extrapolated=found is Resolution.UNRESOLVED,
    )
