"""Error rates: hand-computed cases, scikit-learn as referee, invariants on random pairs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score, roc_curve

from onnxfr.errors import MetricError
from onnxfr.metrics import verification as v
from onnxfr.metrics.thresholds import Resolution, Threshold

Pairs = tuple[np.ndarray, np.ndarray]

SCORES = np.array([0.9, 0.8, 0.4, 0.7, 0.3, 0.2, 0.1, 0.0])
SAME = np.array([1, 1, 1, 0, 0, 0, 0, 0], dtype=bool)


@st.composite
def pairs(draw: st.DrawFn) -> Pairs:
    # Few distinct levels, so that ties within and across classes are the rule.
    level = st.integers(-20, 20).map(lambda k: k / 20)
    genuine = draw(st.lists(level, min_size=1, max_size=30))
    impostor = draw(st.lists(level, min_size=1, max_size=30))
    return np.array(genuine + impostor), np.array([True] * len(genuine) + [False] * len(impostor))


def test_rates_by_hand() -> None:
    found = v.error_rates(SCORES, SAME, 0.5)
    assert (found.fmr.value, found.fmr.n) == (1 / 5, 5)
    assert (found.fnmr.value, found.fnmr.n) == (1 / 3, 3)
    assert found.fta.value == 0
    assert found.far == found.fmr and found.frr == found.fnmr


def test_acceptance_is_strict() -> None:
    found = v.error_rates([0.5, 0.5], [True, False], Threshold(0.5))
    assert (found.fmr.value, found.fnmr.value) == (0.0, 1.0)


def test_failures_count_as_iso_says() -> None:
    rejected = np.array([1, 0, 0, 1, 0, 0, 0, 0], dtype=bool)
    scores = np.where(rejected, np.nan, SCORES)
    found = v.error_rates(scores, SAME, 0.25, rejected)
    assert found.fta.value == 2 / 8
    assert (found.fmr.value, found.fnmr.value) == (1 / 4, 0.0)
    assert (found.far.value, found.frr.value) == (1 / 5, 1 / 3)
    # FAR = FMR (1 - FTA) and FRR = FTA + FNMR (1 - FTA), with each class's own FTA.
    assert found.far.value == pytest.approx(found.fmr.value * (1 - 1 / 5))
    assert found.frr.value == pytest.approx(1 / 3 + found.fnmr.value * (1 - 1 / 3))


def test_generalised_rates_by_hand() -> None:
    found = v.generalised_rates(fmr=0.01, fnmr=0.02, fta=0.1, fte=0.05)
    assert found.far == pytest.approx(0.009)
    assert found.frr == pytest.approx(0.118)
    assert found.gfar == pytest.approx(0.009 * 0.95)
    assert found.gfrr == pytest.approx(0.05 + 0.95 * 0.118)
    with pytest.raises(MetricError, match="FTA"):
        v.generalised_rates(0.1, 0.1, 1.5)


@given(pairs())
@settings(deadline=None)
def test_the_curve_is_monotone_and_matches_counting(data: Pairs) -> None:
    scores, same = data
    found = v.curve(scores, same)
    assert (np.diff(found.fmr) <= 0).all() and (np.diff(found.fnmr) >= 0).all()
    assert (found.fmr[0], found.fnmr[0]) == (1, 0)
    assert (found.fmr[-1], found.fnmr[-1]) == (0, 1)
    for threshold, fmr, fnmr in zip(found.threshold, found.fmr, found.fnmr, strict=True):
        counted = v.error_rates(scores, same, threshold)
        assert (fmr, fnmr) == (counted.fmr.value, counted.fnmr.value)


@given(pairs())
@settings(deadline=None)
def test_the_curve_is_scikit_learns(data: Pairs) -> None:
    scores, same = data
    fpr, tpr, _ = roc_curve(same, scores, drop_intermediate=False)
    found = v.curve(scores, same)
    np.testing.assert_allclose(found.fmr[::-1], fpr)
    np.testing.assert_allclose(found.tar[::-1], tpr)


@given(pairs())
@settings(deadline=None)
def test_auc_is_scikit_learns_and_inside_its_interval(data: Pairs) -> None:
    found = v.auc(*data)
    assert found.value == pytest.approx(roc_auc_score(data[1], data[0]))
    assert found.low <= found.value <= found.high + 1e-12


def test_auc_interval_is_delongs() -> None:
    rng = np.random.default_rng(3)
    scores, same = np.r_[rng.normal(1, 1, 40), rng.normal(0, 1, 60)], np.arange(100) < 40
    g, i = scores[same][:, None], scores[~same][None, :]
    wins = (g > i) + 0.5 * (g == i)
    variance = wins.mean(1).var(ddof=1) / 40 + wins.mean(0).var(ddof=1) / 60
    found = v.auc(scores, same)
    assert found.method == "delong"
    assert found.value - found.low == pytest.approx(1.959964 * math.sqrt(variance), rel=1e-6)


@given(pairs())
@settings(deadline=None)
def test_monotone_transforms_change_no_rate(data: Pairs) -> None:
    scores, same = data
    bent = np.exp(3 * scores) - 7
    assert v.eer(scores, same) == v.eer(bent, same)
    assert v.auc(scores, same).value == pytest.approx(v.auc(bent, same).value)
    assert v.zero_fmr(scores, same) == v.zero_fmr(bent, same)
    for target in (0.01, 0.1, 0.3):
        assert v.at_fmr(scores, same, target).fnmr == v.at_fmr(bent, same, target).fnmr


@given(pairs())
@settings(deadline=None)
def test_eer_lies_between_the_operating_points_around_it(data: Pairs) -> None:
    found = v.curve(*data)
    value = v.eer(*data).value
    worst = np.maximum(found.fmr, found.fnmr)
    best = np.minimum(found.fmr, found.fnmr)
    assert best.max() - 1e-12 <= value <= worst.min() + 1e-12


@pytest.mark.parametrize(
    ("scores", "same", "value"),
    [
        ([1, 2], [False, True], 0.0),
        ([2, 1], [False, True], 1.0),
        ([5, 5, 5], [True, False, False], 0.5),
        ([0.1, 0.6, 0.4, 0.9], [False, False, True, True], 0.5),
    ],
)
def test_eer_by_hand(scores: list[float], same: list[bool], value: float) -> None:
    assert v.eer(scores, same).value == pytest.approx(value)


def test_eer_interpolates_between_points() -> None:
    # The points around the crossing are (FMR, FNMR) = (2/3, 0) and (1/3, 1/2): 4/5 of the way.
    found = v.eer([0.1, 0.3, 0.5, 0.3, 0.9], [False, False, False, True, True])
    assert found.value == pytest.approx(2 / 3 - 4 / 5 * 1 / 3)


def test_operating_points_by_hand() -> None:
    assert v.zero_fmr(SCORES, SAME).value == pytest.approx(1 / 3)
    point = v.at_fmr(SCORES, SAME, 0.2, data="toy")
    assert point.threshold.value == 0.3
    assert point.threshold.origin == "toy@fmr=2e-1~unresolved"
    assert (point.fmr.value, point.fnmr.value, point.tar.value) == (0.2, 0.0, 1.0)
    assert point.resolution is Resolution.UNRESOLVED
    assert v.fmr100(SCORES, SAME) == v.fmr1000(SCORES, SAME) == v.zero_fmr(SCORES, SAME)


@given(pairs(), st.floats(0.001, 0.999))
@settings(deadline=None)
def test_the_operating_point_is_the_lowest_that_meets_its_target(
    data: Pairs, target: float
) -> None:
    scores, same = data
    point = v.at_fmr(scores, same, target)
    found = v.curve(scores, same)
    legal = found.fmr <= target + 1e-9
    assert point.fmr.value <= target + 1e-9
    assert point.fnmr.value == pytest.approx(found.fnmr[legal].min())


def test_every_target_lets_exactly_its_share_of_impostors_through() -> None:
    scores = np.r_[np.linspace(0, 0.5, 3000), 0.9]
    same = np.arange(3001) == 3000
    for target, accepted in ((1e-3, 3), (1e-2, 30), (0.1, 300), (3.3e-4, 0)):
        assert v.at_fmr(scores, same, target).fmr.value == pytest.approx(accepted / 3000)


def test_rejected_genuine_pairs_cap_the_tar() -> None:
    rejected = np.array([1, 0, 0, 0, 0, 0, 0, 1], dtype=bool)
    assert v.at_fmr(SCORES, SAME, 0.2, rejected).tar.value == pytest.approx(2 / 3)
    found = v.curve(SCORES, SAME, rejected)
    assert (found.fmr[0], found.fnmr[0]) == (4 / 5, 1 / 3)
    with pytest.raises(MetricError, match="rejected"):
        v.eer(SCORES, SAME, np.array([1, 1, 0, 1, 1, 1, 0, 0], dtype=bool))


def test_an_fmr_met_by_every_scored_impostor_accepts_all_scored_pairs() -> None:
    rejected = np.array([0, 0, 0, 1, 1, 1, 1, 0], dtype=bool)
    point = v.at_fmr(SCORES, SAME, 0.5, rejected)
    assert point.fmr.value == 1 / 5 and point.fnmr.value == 0
    assert math.isfinite(point.threshold.value)


def test_d_prime_by_hand_and_at_the_edges() -> None:
    assert v.d_prime([3, 5, 0, 2], [1, 1, 0, 0]) == pytest.approx(3.0)
    assert v.d_prime([1, 0], [1, 0]) == math.inf
    assert v.d_prime([1, 1], [1, 0]) == 0.0
    assert v.d_prime([3, 5, 0, 2, np.nan], [1, 1, 0, 0, 1], [0, 0, 0, 0, 1]) == pytest.approx(3.0)


def test_det_points_are_finite_probits() -> None:
    x, y = v.det_points(v.curve(SCORES, SAME))
    assert np.isfinite(x).all() and np.isfinite(y).all()
    assert (np.diff(x) <= 0).all() and (np.diff(y) >= 0).all()
    assert x[0] == pytest.approx(-x[-1]) and y[0] == pytest.approx(-y[-1])


def test_one_class_alone_has_rates_but_no_curve() -> None:
    only_genuine = v.error_rates([0.1, 0.9], [True, True], 0.5)
    assert only_genuine.fnmr.value == 0.5
    assert math.isnan(only_genuine.fmr.value) and only_genuine.fmr.n == 0
    for metric in (v.curve, v.eer, v.auc, v.zero_fmr, v.fmr100, v.d_prime):
        for same in ([True, True], [False, False]):
            with pytest.raises(MetricError):
                metric([0.1, 0.9], same)


@pytest.mark.parametrize(
    ("scores", "same", "rejected", "words"),
    [
        ([], [], None, "no pairs"),
        ([0.1, np.nan], [True, False], None, "1 of 2 scores"),
        ([0.1, np.inf], [True, False], None, "infinite"),
        ([0.1, 0.2], [True], None, "2 elements"),
        ([0.1, 0.2], [True, False], [True], "rejected"),
        ([[0.1, 0.2]], [True, False], None, "one dimension"),
        (["a", "b"], [True, False], None, "numbers"),
        ([0.1, 0.2], [1, 7], None, "0 or 1"),
    ],
)
def test_bad_arrays_give_one_typed_error(
    scores: object, same: object, rejected: object, words: str
) -> None:
    for metric in (v.curve, v.eer, v.auc, v.zero_fmr, v.d_prime, v.fmr1000):
        with pytest.raises(MetricError, match=words):
            metric(scores, same, rejected)  # type: ignore[arg-type]
    with pytest.raises(MetricError, match=words):
        v.error_rates(scores, same, 0.5, rejected)  # type: ignore[arg-type]


def test_a_nan_threshold_and_a_target_outside_the_unit_interval_are_refused() -> None:
    with pytest.raises(MetricError, match="NaN"):
        v.error_rates(SCORES, SAME, float("nan"))
    for target in (0.0, 1.0, -1.0, float("nan")):
        with pytest.raises(MetricError, match="target"):
            v.at_fmr(SCORES, SAME, target)


def test_inputs_are_left_as_they_were() -> None:
    scores, rejected = SCORES.copy(), np.array([1] + [0] * 7, dtype=bool)
    v.error_rates(scores, SAME, 0.5, rejected)
    v.at_fmr(scores, SAME, 0.2, rejected)
    np.testing.assert_array_equal(scores, SCORES)


def test_documented_answers_at_the_edges() -> None:
    ties = ([0.4] * 6, [1, 1, 0, 0, 0, 0])
    assert v.eer(*ties).value == v.auc(*ties).value == 0.5
    assert v.d_prime(*ties) == 0.0
    single = v.auc([0.9, 0.1], [True, False])
    assert (single.value, single.method, single.n) == (1.0, "wilson-min-class", 1)
    assert single.low < 0.5
    nobody = v.error_rates([np.nan, np.nan], [True, False], 0.3, [True, True])
    assert (nobody.frr.value, nobody.far.value, nobody.fta.value) == (1.0, 0.0, 1.0)
    assert nobody.fnmr.n == nobody.fmr.n == 0
    with pytest.raises(MetricError, match="scored pairs of both"):
        v.d_prime([np.nan, 0.1], [True, False], [True, False])
    assert v.zero_fmr([0.9, np.nan], [True, False], [False, True]).value == 0.0
