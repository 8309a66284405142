"""Differences between groups, and tails beyond the data."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from onnxfr.errors import MetricError
from onnxfr.metrics.demographic import fairness, gini, group_gap
from onnxfr.metrics.extreme_value import extrapolate_threshold
from onnxfr.metrics.thresholds import Resolution

SCORES = [0.9, 0.9, 0.1, 0.1, 0.9, 0.1, 0.9, 0.1]
SAME = [1, 1, 0, 0, 1, 1, 0, 0]
GROUP = ["x"] * 4 + ["y"] * 4


def test_fairness_by_hand() -> None:
    found = fairness(SCORES, SAME, GROUP, 0.5, alpha=0.25)
    assert (found.per_group["x"].far.value, found.per_group["x"].frr.value) == (0, 0)
    assert (found.per_group["y"].far.value, found.per_group["y"].frr.value) == (0.5, 0.5)
    assert found.fdr == pytest.approx(0.5)
    assert found.garbe == pytest.approx(1.0)
    equal = fairness(SCORES[:4] * 2, SAME[:4] * 2, GROUP, 0.5)
    assert (equal.fdr, equal.garbe) == (1.0, 0.0)


def test_a_group_the_detector_fails_is_not_called_well_served() -> None:
    scores = [0.9, 0.9, 0.1, 0.1] * 2
    rejected = [0, 0, 0, 0, 1, 1, 0, 0]
    found = fairness(scores, SAME[:4] * 2, GROUP, 0.5, rejected=rejected)
    assert found.per_group["y"].frr.value == 1.0
    assert found.fdr == 0.5


def test_worst_group_of_any_outcome() -> None:
    found = group_gap([0, 0, 0, 1, 1, 1, 0, 1], GROUP)
    assert found.worst == "y"
    assert found.gap == pytest.approx(0.5)
    assert found.per_group["y"].value == 0.75
    assert found.per_group["y"].low < 0.75 < found.per_group["y"].high


@given(st.lists(st.floats(0, 1), min_size=2, max_size=10), st.floats(0.01, 1))
@settings(deadline=None)
def test_gini_has_its_bounds_and_ignores_scale(rates: list[float], factor: float) -> None:
    found = gini(rates)
    assert -1e-9 <= found <= 1 + 1e-9
    if min(rates) > 1e-6:
        assert gini(np.array(rates) * factor) == pytest.approx(found, abs=1e-9)
    assert gini([0.3] * len(rates)) == pytest.approx(0.0)


def test_one_sided_inequality_is_total() -> None:
    assert gini([0.0, 0.0, 0.4]) == pytest.approx(1.0)
    assert gini([0.0, 0.0]) == 0.0
    assert gini([0.0, 5e-324]) == pytest.approx(1.0)


def test_groups_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(MetricError, match="two of them"):
        group_gap([0, 1], ["x", "x"])
    with pytest.raises(MetricError, match="8 elements"):
        fairness(SCORES, SAME, ["x"], 0.5)
    with pytest.raises(MetricError, match=r"without genuine.*'x'"):
        fairness(SCORES[:6], [1, 1, 1, 1, 1, 0], ["x"] * 4 + ["y"] * 2, 0.5)
    with pytest.raises(MetricError, match="alpha"):
        fairness(SCORES, SAME, GROUP, 0.5, alpha=2)
    with pytest.raises(MetricError, match="non-negative"):
        gini([0.1, np.nan])


@pytest.mark.parametrize("shape", [-0.3, 0.0, 0.15])
def test_a_pareto_tail_is_recovered_beyond_the_data(shape: float) -> None:
    tail = stats.genpareto(shape, scale=0.05)
    rng = np.random.default_rng(7)
    inside = 0
    for trial in range(20):
        scores = np.r_[rng.uniform(-0.3, 0.2, 19_000), 0.2 + tail.rvs(1000, random_state=rng)]
        found = extrapolate_threshold(
            scores, np.zeros(20_000, bool), 1e-5, data="toy", seed=trial, resamples=200
        )
        truth = 0.2 + tail.isf(1e-5 / 0.05)
        inside += found.interval.low <= truth <= found.interval.high
    assert inside >= 15
    assert found.extrapolated and found.tail_size == 1000
    assert found.threshold.origin == "toy@fmr=1e-5~evt"
    assert found.threshold.resolution is Resolution.UNRESOLVED


def test_inside_the_data_the_model_finds_the_true_quantile() -> None:
    rng = np.random.default_rng(1)
    scores = rng.normal(0, 0.08, 100_000)
    found = extrapolate_threshold(scores, np.zeros(100_000, bool), 1e-3)
    assert not found.extrapolated
    assert found.threshold.value == pytest.approx(0.08 * stats.norm.isf(1e-3), abs=0.004)


def test_tails_that_cannot_be_modelled_are_refused() -> None:
    flat = np.zeros(2000)
    with pytest.raises(MetricError, match="too short"):
        extrapolate_threshold(flat[:100], flat[:100], 1e-5)
    with pytest.raises(MetricError, match="equal"):
        extrapolate_threshold(flat, flat, 1e-5)
    with pytest.raises(MetricError, match="measure it"):
        extrapolate_threshold(flat, flat, 0.1)
    with pytest.raises(MetricError, match="too short"):
        extrapolate_threshold(flat, flat, 1e-5, rejected=flat == 0)
