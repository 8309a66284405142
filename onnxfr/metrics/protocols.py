"""The ways papers turn pair scores into one accuracy, each under its own name.

``kfold_accuracy`` and ``kfold_tar`` follow the InsightFace/FaceNet evaluation, ``oracle_accuracy``
the RobFR and OODFace one, which picks its threshold on the very pairs it then scores; it is offered
to reproduce papers and labelled so nobody mistakes it. Rejected pairs are never accepted.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from onnxfr.errors import MetricError
from onnxfr.metrics._checks import Bools, Floats, Ints, both_classes, fraction, pair_scores, vector
from onnxfr.metrics.intervals import Estimate, rate, wilson
from onnxfr.metrics.thresholds import (
    Resolution,
    Threshold,
    distance_to_cosine,
    resolution,
)


@dataclass(frozen=True)
class AccuracyResult:
    """An accuracy, the protocol and threshold behind it, and which pairs were right."""

    protocol: str
    accuracy: Estimate
    std: float
    threshold: Threshold
    rejected: int
    fold_accuracy: tuple[float, ...] = ()
    fold_threshold: tuple[float, ...] = ()
    correct: Bools = field(
        repr=False, compare=False, default_factory=lambda: np.zeros(0, dtype=np.bool_)
    )


@dataclass(frozen=True)
class KFoldTar:
    """TAR at a target FAR, threshold interpolated on the other folds (called VAL@FAR)."""

    target: float
    tar: Estimate
    std: float
    far: Estimate
    fold_threshold: tuple[float, ...]
    resolution: Resolution


def contiguous_folds(pairs: int, folds: int = 10) -> Ints:
    """Return fold ids of an unshuffled k-fold split over the order of the pairs."""
    if not 2 <= folds <= pairs:
        raise MetricError(f"{pairs} pairs cannot be split in {folds} folds")
    sizes = np.full(folds, pairs // folds)
    sizes[: pairs % folds] += 1
    return np.repeat(np.arange(folds), sizes)


def distance_grid(step: float) -> Floats:
    """Return the squared-distance thresholds 0, step, ... below 4."""
    return np.arange(0.0, 4.0, step)


def fold_ids(fold: ArrayLike | None, pairs: int, folds: int) -> Ints:
    """Return the given fold ids numbered from 0, or contiguous folds when none are given."""
    if fold is None:
        return contiguous_folds(pairs, folds)
    ids = vector(fold, "fold")
    if ids.size != pairs:
        raise MetricError(f"fold must have {pairs} elements like the scores, got {ids.size}")
    names, index = np.unique(ids, return_inverse=True)
    if names.size < 2:
        raise MetricError("cross-validation needs at least two folds, got one")
    return index.astype(np.int64)


def squared_distances(scores: Floats) -> Floats:
    """Squared distances of cosines; a rejected pair (-inf) is infinitely far."""
    if (np.abs(scores[np.isfinite(scores)]) > 1.001).any():
        raise MetricError(
            "k-fold protocols scan cosines, but scores outside [-1, 1] came; use the oracle or a "
            "fixed threshold for a score on another scale"
        )
    return np.maximum(2.0 - 2.0 * scores, 0.0)


def accepted_counts(distances: Floats, same: Bools, grid: Floats) -> tuple[Floats, Floats]:
    """Count, for every threshold of the grid, accepted genuine and accepted impostor pairs."""
    first = np.searchsorted(grid, distances, "right")
    accepted = [
        np.cumsum(np.bincount(first[mask], minlength=grid.size + 1)[: grid.size]).astype(np.float64)
        for mask in (same, ~same)
    ]
    return accepted[0], accepted[1]


def kfold_accuracy(
    scores: ArrayLike,
    same: ArrayLike,
    *,
    fold: ArrayLike | None = None,
    folds: int = 10,
    rejected: ArrayLike | None = None,
    data: str = "data",
    level: float = 0.95,
) -> AccuracyResult:
    """Return cross-validated accuracy: each fold is judged with the others' best threshold.

    Thresholds on the squared distance run over 0, 0.01, ..., 3.99; the first best one is taken and
    a pair is accepted when its distance is strictly smaller. ``std`` is the population one.
    """
    values, genuine, refused = pair_scores(scores, same, rejected)
    both_classes(genuine, "k-fold accuracy")
    index = fold_ids(fold, values.size, folds)
    grid, distances = distance_grid(0.01), squared_distances(values)
    count = int(index.max()) + 1
    hits = np.zeros((count, grid.size))
    for k in range(count):
        held = index == k
        true_accepts, false_accepts = accepted_counts(distances[held], genuine[held], grid)
        hits[k] = true_accepts + (~genuine[held]).sum() - false_accepts
    best = np.argmax(hits.sum(axis=0) - hits, axis=1)
    correct = (distances < grid[best][index]) == genuine
    per_fold = np.bincount(index, weights=correct) / np.bincount(index)
    mean = float(per_fold.mean())
    name = f"{data}@{count}fold"
    return AccuracyResult(
        protocol=f"kfold{count}",
        accuracy=wilson(min(mean, 1.0) * values.size, values.size, level),
        std=float(per_fold.std()),
        threshold=Threshold(distance_to_cosine(float(grid[best].mean())), name),
        rejected=int(refused.sum()),
        fold_accuracy=tuple(per_fold.tolist()),
        fold_threshold=tuple((1.0 - grid[best] / 2).tolist()),
        correct=correct,
    )


def _interpolated_threshold(far: Floats, grid: Floats, target: float) -> float:
    reached = np.flatnonzero(far >= target)
    if reached.size == 0:
        return 0.0
    at = int(reached[0])
    if at == 0 or far[at] == target:
        return float(grid[at])
    share = (target - far[at - 1]) / (far[at] - far[at - 1])
    return float(grid[at - 1] + share * (grid[at] - grid[at - 1]))


def kfold_tar(
    scores: ArrayLike,
    same: ArrayLike,
    target: float = 1e-3,
    *,
    fold: ArrayLike | None = None,
    folds: int = 10,
    rejected: ArrayLike | None = None,
    level: float = 0.95,
) -> KFoldTar:
    """Return VAL@FAR: the threshold comes from the other folds' FAR curve, linearly interpolated.

    The distance grid has step 0.001; a target the curve never reaches gives threshold 0, so TAR 0.
    """
    values, genuine, _ = pair_scores(scores, same, rejected)
    both_classes(genuine, "TAR at a FAR")
    fraction(target, "the target FAR")
    index = fold_ids(fold, values.size, folds)
    grid, distances = distance_grid(0.001), squared_distances(values)
    limits: list[float] = []
    tars: list[float] = []
    fars: list[float] = []
    for k in range(int(index.max()) + 1):
        held = index == k
        if not genuine[held].any() or genuine[held].all() or genuine[~held].all():
            raise MetricError(f"fold {k} or its complement lacks genuine or impostor pairs")
        _, false_accepts = accepted_counts(distances[~held], genuine[~held], grid)
        limit = _interpolated_threshold(false_accepts / (~genuine[~held]).sum(), grid, target)
        accepted = distances[held] < limit
        limits.append(distance_to_cosine(limit))
        tars.append(float(accepted[genuine[held]].mean()))
        fars.append(float(accepted[~genuine[held]].mean()))
    mated, impostor = int(genuine.sum()), int((~genuine).sum())
    return KFoldTar(
        target=target,
        tar=wilson(min(1.0, float(np.mean(tars))) * mated, mated, level),
        std=float(np.std(tars)),
        far=wilson(min(1.0, float(np.mean(fars))) * impostor, impostor, level),
        fold_threshold=tuple(limits),
        resolution=resolution(target, impostor),
    )


def oracle_accuracy(
    scores: ArrayLike,
    same: ArrayLike,
    *,
    rejected: ArrayLike | None = None,
    data: str = "data",
    level: float = 0.95,
) -> AccuracyResult:
    """Return the best accuracy any observed score gives as threshold on these same pairs.

    Optimistic by construction. Equal accuracies go to the smallest distance, the strictest
    threshold.
    """
    values, genuine, refused = pair_scores(scores, same, rejected)
    both_classes(genuine, "best-threshold accuracy")
    candidates = np.unique(values[np.isfinite(values)])[::-1]
    if candidates.size == 0:
        raise MetricError("best-threshold accuracy needs at least one scored pair")
    impostor, mated = np.sort(values[~genuine]), np.sort(values[genuine])
    hits = (mated.size - np.searchsorted(mated, candidates, "right")) + np.searchsorted(
        impostor, candidates, "right"
    )
    limit = float(candidates[np.argmax(hits)])
    correct = (values > limit) == genuine
    return AccuracyResult(
        protocol="oracle",
        accuracy=rate(correct, level),
        std=0.0,
        threshold=Threshold(limit, f"{data}@oracle"),
        rejected=int(refused.sum()),
        correct=correct,
    )


def fixed_accuracy(
    scores: ArrayLike,
    same: ArrayLike,
    threshold: Threshold,
    *,
    rejected: ArrayLike | None = None,
    level: float = 0.95,
) -> AccuracyResult:
    """Return the accuracy at a threshold chosen elsewhere; one class alone is allowed.

    This is the protocol of everything measured under attack or corruption: freeze
    ``threshold_at_fmr`` on clean pairs first, then judge the degraded ones with it.
    """
    values, genuine, refused = pair_scores(scores, same, rejected)
    correct = (values > threshold.value) == genuine
    return AccuracyResult(
        protocol="fixed",
        accuracy=rate(correct, level),
        std=0.0,
        threshold=threshold,
        rejected=int(refused.sum()),
        correct=correct,
    )
