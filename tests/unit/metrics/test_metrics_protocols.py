"""Accuracy protocols: InsightFace's and RobFR's choices, against plain loops and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import KFold

from onnxfr.errors import MetricError
from onnxfr.metrics import protocols as p
from onnxfr.metrics.thresholds import Resolution, Threshold


def scored_pairs(seed: int, n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    same = rng.random(n) < 0.5
    return np.clip(rng.normal(np.where(same, 0.5, 0.1), 0.18), -1, 1), same


def looped_kfold(
    scores: np.ndarray, same: np.ndarray, folds: int
) -> tuple[list[float], list[float]]:
    distances, grid = 2 - 2 * scores, np.arange(0, 4, 0.01)
    accuracies, chosen = [], []
    for train, test in KFold(folds, shuffle=False).split(scores):
        curve = [np.mean((distances[train] < t) == same[train]) for t in grid]
        chosen.append(grid[int(np.argmax(curve))])
        accuracies.append(float(np.mean((distances[test] < chosen[-1]) == same[test])))
    return accuracies, chosen


@pytest.mark.parametrize(("seed", "n", "folds"), [(0, 400, 10), (1, 403, 10), (2, 57, 5)])
def test_kfold_is_the_plain_loop_over_scikit_learns_folds(seed: int, n: int, folds: int) -> None:
    scores, same = scored_pairs(seed, n)
    accuracies, chosen = looped_kfold(scores, same, folds)
    found = p.kfold_accuracy(scores, same, folds=folds, data="lfw")
    np.testing.assert_allclose(found.fold_accuracy, accuracies)
    np.testing.assert_allclose(found.fold_threshold, 1 - np.array(chosen) / 2)
    assert found.accuracy.value == pytest.approx(np.mean(accuracies))
    assert found.std == pytest.approx(np.std(accuracies))
    assert found.threshold.origin == f"lfw@{folds}fold"
    assert found.threshold.distance == pytest.approx(np.mean(chosen))
    assert found.protocol == f"kfold{folds}"
    assert found.accuracy.low <= found.accuracy.value <= found.accuracy.high
    assert found.accuracy.n == n


def test_given_folds_equal_contiguous_ones_whatever_the_order() -> None:
    scores, same = scored_pairs(5)
    ids = p.contiguous_folds(400, 10)
    order = np.random.default_rng(0).permutation(400)
    straight = p.kfold_accuracy(scores, same)
    shuffled = p.kfold_accuracy(
        scores[order], same[order], fold=np.array(list("abcdefghij"))[ids[order]]
    )
    assert straight.fold_accuracy == shuffled.fold_accuracy
    np.testing.assert_array_equal(straight.correct[order], shuffled.correct)


def test_the_first_best_threshold_wins_and_acceptance_is_strict() -> None:
    # D = 1 for genuine and 2 for impostor pairs: every t in (1, 2] is perfect, 1.01 comes first.
    scores, same = np.tile([0.5, 0.0], 10), np.tile([True, False], 10)
    found = p.kfold_accuracy(scores, same)
    assert found.accuracy.value == 1.0 and found.std == 0.0
    assert found.threshold.distance == pytest.approx(1.01)
    # A pair exactly on a threshold of the grid is not accepted by it.
    accepted, _ = p.accepted_counts(np.array([1.0]), np.array([True]), p.distance_grid(0.5))
    assert accepted.tolist() == [0, 0, 0, 1, 1, 1, 1, 1]


def test_rejected_pairs_are_never_accepted() -> None:
    scores, same = np.tile([0.5, 0.0], 10), np.tile([True, False], 10)
    rejected = np.zeros(20, bool)
    rejected[[0, 1]] = True
    scores[rejected] = np.nan
    found = p.kfold_accuracy(scores, same, rejected=rejected)
    assert found.rejected == 2
    assert found.accuracy.value == pytest.approx(19 / 20)
    assert not found.correct[0] and found.correct[1]
    assert p.oracle_accuracy(scores, same, rejected=rejected).accuracy.value == 19 / 20


@given(st.integers(0, 10**6), st.integers(2, 40))
@settings(max_examples=60, deadline=None)
def test_oracle_is_the_best_observed_threshold(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(-5, 6, n) / 5
    same = rng.random(n) < 0.5
    same[:2] = [True, False]
    found = p.oracle_accuracy(scores, same, data="lfw")
    tried = {t: np.mean((scores > t) == same) for t in np.unique(scores)}
    assert found.accuracy.value == pytest.approx(max(tried.values()))
    assert found.threshold.value == max(t for t, a in tried.items() if a == max(tried.values()))
    assert found.threshold.origin == "lfw@oracle"
    assert found.accuracy.value == found.correct.mean()


def test_oracle_is_never_below_a_fixed_observed_threshold_or_kfold_on_the_same_grid() -> None:
    scores, same = scored_pairs(9)
    best = p.oracle_accuracy(scores, same).accuracy.value
    assert best >= p.kfold_accuracy(scores, same).accuracy.value
    assert best >= p.fixed_accuracy(scores, same, Threshold(float(scores[3]))).accuracy.value


def test_oracle_takes_scores_of_any_scale_and_kfold_refuses_them() -> None:
    scores, same = np.array([80.0, 60.0, 40.0, 20.0]), np.array([True, True, False, False])
    assert p.oracle_accuracy(scores, same).threshold.value == 40.0
    with pytest.raises(MetricError, match="scale"):
        p.kfold_accuracy(scores, same, folds=2)


def test_fixed_threshold_by_hand_and_on_one_class() -> None:
    threshold = Threshold(0.3, "lfw@fmr=1e-3")
    found = p.fixed_accuracy([0.5, 0.3, 0.31, 0.0], [1, 1, 0, 0], threshold)
    assert found.accuracy.value == 0.5
    assert found.threshold is threshold
    assert p.fixed_accuracy([0.5, 0.1], [True, True], threshold).accuracy.value == 0.5


def test_kfold_tar_is_the_plain_loop() -> None:
    scores, same = scored_pairs(4, 1000)
    grid, distances = np.arange(0, 4, 0.001), 2 - 2 * scores
    tars, fars = [], []
    for train, test in KFold(10).split(scores):
        far = np.array([np.mean(distances[train][~same[train]] < t) for t in grid])
        at = int(np.argmax(far >= 0.02))
        t = np.interp(0.02, far[at - 1 : at + 1], grid[at - 1 : at + 1])
        tars.append(np.mean(distances[test][same[test]] < t))
        fars.append(np.mean(distances[test][~same[test]] < t))
    found = p.kfold_tar(scores, same, 0.02)
    assert found.tar.value == pytest.approx(np.mean(tars))
    assert found.std == pytest.approx(np.std(tars))
    assert found.far.value == pytest.approx(np.mean(fars))
    assert found.resolution is Resolution.COARSE


def test_kfold_tar_takes_the_exact_point_when_the_curve_has_it() -> None:
    # One impostor of ten at D = 0.6; FAR jumps to 0.1 at the first t above it.
    scores = np.tile(np.r_[np.full(10, 0.9), 0.7, np.zeros(9)], 2)
    same = np.tile(np.r_[np.full(10, True), np.full(10, False)], 2)
    found = p.kfold_tar(scores, same, 0.1, folds=2)
    assert 1 - np.array(found.fold_threshold) == pytest.approx(np.full(2, 0.601 / 2), abs=6e-4)
    assert found.tar.value == 1.0 and found.far.value == pytest.approx(0.1)


def test_a_far_never_reached_gives_threshold_zero_and_no_accept() -> None:
    scores, same = np.tile([0.9, -1.0], 20), np.tile([True, False], 20)
    found = p.kfold_tar(scores, same, 1e-3)
    assert found.tar.value == 0.0
    assert found.fold_threshold == (1.0,) * 10
    assert found.resolution is Resolution.UNRESOLVED


@pytest.mark.parametrize(
    ("n", "folds", "sizes"), [(10, 3, [4, 3, 3]), (6000, 10, [600] * 10), (2, 2, [1, 1])]
)
def test_contiguous_folds(n: int, folds: int, sizes: list[int]) -> None:
    assert np.bincount(p.contiguous_folds(n, folds)).tolist() == sizes


def test_what_cannot_be_cross_validated_is_refused() -> None:
    scores, same = scored_pairs(0, 30)
    with pytest.raises(MetricError, match="folds"):
        p.kfold_accuracy(scores[:5], same[:5], folds=10)
    with pytest.raises(MetricError, match="two folds"):
        p.kfold_accuracy(scores, same, fold=np.zeros(30))
    with pytest.raises(MetricError, match="30 elements"):
        p.kfold_accuracy(scores, same, fold=np.zeros(3))
    with pytest.raises(MetricError, match="genuine and impostor"):
        p.kfold_accuracy(scores, np.ones(30, bool))
    with pytest.raises(MetricError, match="lacks"):
        p.kfold_tar(np.sort(scores), np.arange(30) < 15, 0.1)
    with pytest.raises(MetricError, match="scored"):
        p.oracle_accuracy(scores, same, rejected=np.ones(30, bool))
