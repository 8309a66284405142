"""Metrics of weighted pairs, many weightings at once: what the bootstrap resamples.

Each factory checks its arrays once and returns a function of weights ``(B, N)`` that, for weights
of one, equals the plain metric of the same name.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from onnxfr.metrics._checks import Floats, both_classes, flags, floats, fraction, pair_scores
from onnxfr.metrics.bootstrap import Statistic
from onnxfr.metrics.protocols import distance_grid, fold_ids, squared_distances


def _ratio(numerator: Floats, denominator: Floats) -> Floats:
    ratio: Floats = np.full(numerator.shape, np.nan)
    np.divide(numerator, denominator, out=ratio, where=denominator > 0)
    return ratio


def weighted_rate(hits: ArrayLike, among: ArrayLike | None = None) -> Statistic:
    """Share of ``hits``, over all pairs or those in ``among`` (genuine ones, one group...)."""
    true = flags(hits, "hits")
    base = np.ones(true.size, np.bool_) if among is None else flags(among, "among", true.size)
    numerator, denominator = (true & base).astype(np.float64), base.astype(np.float64)
    return lambda weights: _ratio(weights @ numerator, weights @ denominator)


def weighted_median(cost: ArrayLike) -> Statistic:
    """Smallest cost that at least half of the weight does not exceed; failures are infinite."""
    values = floats(cost, "cost")
    order = np.argsort(values, kind="stable")
    ranked = values[order]

    def statistic(weights: Floats) -> Floats:
        below = np.cumsum(weights[:, order], axis=1)
        total = below[:, -1:]
        lower = np.argmax(below >= total / 2, axis=1)
        upper = np.argmax(below > total / 2, axis=1)
        middle = (ranked[lower] + ranked[upper]) / 2
        return np.where(total[:, 0] > 0, middle, np.nan)

    return statistic


def weighted_kfold_accuracy(
    scores: ArrayLike,
    same: ArrayLike,
    *,
    fold: ArrayLike | None = None,
    folds: int = 10,
    rejected: ArrayLike | None = None,
) -> Statistic:
    """Cross-validated accuracy whose thresholds are chosen anew in every resample."""
    values, genuine, _ = pair_scores(scores, same, rejected)
    both_classes(genuine, "k-fold accuracy")
    index = fold_ids(fold, values.size, folds)
    grid = distance_grid(0.01)
    accepted = squared_distances(values)[:, None] < grid
    # Weights are counts of people, so that float32 sums them exactly, and twice as fast.
    correct = (accepted == genuine[:, None]).astype(np.float32)
    members = [np.flatnonzero(index == k) for k in range(int(index.max()) + 1)]

    def statistic(weights: Floats) -> Floats:
        counts = weights.astype(np.float32)
        hits = np.stack([counts[:, rows] @ correct[rows] for rows in members]).astype(np.float64)
        size = np.stack([weights[:, rows].sum(axis=1) for rows in members])
        best = np.argmax(hits.sum(axis=0) - hits, axis=2)
        held = np.take_along_axis(hits, best[:, :, None], axis=2)[:, :, 0]
        return np.asarray(_ratio(held, size).mean(axis=0), dtype=np.float64)

    return statistic


def weighted_fnmr_at_fmr(
    scores: ArrayLike, same: ArrayLike, target: float, *, rejected: ArrayLike | None = None
) -> Statistic:
    """FNMR at a target FMR whose threshold is set anew in every resample."""
    values, genuine, _ = pair_scores(scores, same, rejected)
    both_classes(genuine, "FNMR at an FMR")
    fraction(target, "the target FMR")
    mated = np.flatnonzero(genuine)[np.argsort(values[genuine], kind="stable")]
    impostor = np.flatnonzero(~genuine)[np.argsort(-values[~genuine], kind="stable")]
    below = np.searchsorted(values[mated], values[impostor], "right")

    def statistic(weights: Floats) -> Floats:
        false_accepts = np.cumsum(weights[:, impostor], axis=1)
        allowed = target * false_accepts[:, -1:] + 1e-9
        first_refused = np.argmax(false_accepts > allowed, axis=1)
        refused = np.cumsum(weights[:, mated], axis=1)
        missed = np.concatenate([np.zeros((weights.shape[0], 1)), refused], axis=1)
        at = np.take_along_axis(missed, below[first_refused][:, None], axis=1)[:, 0]
        undefined = false_accepts[:, -1] <= 0
        return np.where(undefined, np.nan, _ratio(at, refused[:, -1]))

    return statistic
