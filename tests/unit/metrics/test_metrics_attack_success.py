"""Attack success under every convention, from numbers small enough to check by eye."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxfr.errors import MetricError
from onnxfr.metrics.attack_success import (
    attack_success,
    curve_auc,
    median_cost,
    robfr_score,
    success_auc,
    success_curve,
    transfer_summary,
)

costs = st.lists(
    st.one_of(st.floats(0, 50), st.just(math.nan), st.just(math.inf)), min_size=1, max_size=40
)


def test_three_names_from_the_same_decisions() -> None:
    found = attack_success([1, 0, 0, 0, 0], [1, 1, 1, 0, 0])
    assert found.asr_all.value == 3 / 5
    assert (found.asr_clean_correct.value, found.asr_clean_correct.n) == (2 / 4, 4)
    assert found.robust_acc.value == pytest.approx(2 / 5)
    assert found.robust_acc.low == pytest.approx(1 - found.asr_all.high)


def test_nothing_right_when_clean_leaves_the_conditional_rate_undefined() -> None:
    found = attack_success([1, 1], [1, 1])
    assert math.isnan(found.asr_clean_correct.value) and found.asr_clean_correct.n == 0
    with pytest.raises(MetricError, match="no pairs"):
        attack_success([], [])


def test_the_budget_curve_comes_from_minima_and_keeps_failures() -> None:
    found = success_curve([0.0, 1.0, 2.0, np.nan], [0, 0.5, 1, 2, 100])
    assert found.asr.tolist() == [0.25, 0.25, 0.5, 0.75, 0.75]
    assert found.accuracy.tolist() == [0.75, 0.75, 0.5, 0.25, 0.25]
    assert (found.low <= found.asr).all() and (found.asr <= found.high).all()
    assert found.n == 4


@given(costs)
@settings(deadline=None)
def test_curves_never_fall_and_their_area_is_the_exact_integral(cost: list[float]) -> None:
    fine = np.linspace(0, 10, 4001)
    found = success_curve(cost, fine)
    assert (np.diff(found.asr) >= 0).all()
    assert success_auc(cost, 10) == pytest.approx(curve_auc(fine, found.asr), abs=2e-3)


def test_the_median_counts_failures_as_infinite() -> None:
    assert median_cost([1, 2, np.nan]).value == 2
    assert median_cost([1, np.nan, np.nan]).value == math.inf
    assert median_cost([1, 3]).value == 2
    only = median_cost([4.0])
    assert (only.low, only.value, only.high) == (0.0, 4.0, math.inf)


@given(costs)
@settings(deadline=None)
def test_the_median_lies_in_its_interval(cost: list[float]) -> None:
    found = median_cost(cost)
    assert found.low <= found.value <= found.high


def test_the_median_interval_covers() -> None:
    rng = np.random.default_rng(0)
    inside = sum(
        (found := median_cost(rng.exponential(1, 35))).low <= math.log(2) <= found.high
        for _ in range(400)
    )
    assert inside >= 0.93 * 400


def test_robfr_drops_clean_errors_takes_the_upper_middle_and_clips() -> None:
    found = robfr_score([0.0, 0.0, 1.0, 2.0, 3.0, 64.0], [1, 1, 1, 1, 1, 0])
    assert (found.kept, found.dropped) == (4, 2)
    assert found.median == 3.0
    assert found.mean == (1 + 2 + 3 + 32) / 4
    assert found.asr == 0.75
    # The same minima under our convention: clean errors cost nothing, the failure is infinite.
    assert median_cost([0.0, 0.0, 1.0, 2.0, 3.0, np.nan]).value == 1.5
    with pytest.raises(MetricError, match="every distance is 0"):
        robfr_score([0.0, 0.0], [1, 1])


def test_transfer_means_leave_the_diagonal_out() -> None:
    found = transfer_summary([[1.0, 0.2, 0.4], [0.1, 1.0, 0.3], [0.0, 0.5, 1.0]])
    assert found.mean == pytest.approx(1.5 / 6)
    np.testing.assert_allclose(found.source_strength, [0.3, 0.2, 0.25])
    np.testing.assert_allclose(found.target_weakness, [0.05, 0.35, 0.35])


def test_bad_input_is_refused() -> None:
    with pytest.raises(MetricError, match="negative"):
        success_curve([-1.0], [1.0])
    with pytest.raises(MetricError, match="finite"):
        success_curve([1.0], [math.inf])
    with pytest.raises(MetricError, match="positive"):
        success_auc([1.0], 0)
    with pytest.raises(MetricError, match="no pairs"):
        median_cost([])
    with pytest.raises(MetricError, match="increasing"):
        curve_auc([0, 2, 1], [0, 0, 0])
    with pytest.raises(MetricError, match="two points"):
        curve_auc([0], [0])
    for matrix in ([[1.0]], [[1.0, 2.0]], [[1.0, np.nan], [0.0, 1.0]]):
        with pytest.raises(MetricError):
            transfer_summary(matrix)
