"""Tests of differences against SciPy and textbook numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from onnxfr.errors import MetricError
from onnxfr.metrics.significance import compare_all, friedman, holm, mcnemar, wilcoxon


def discordant(only_a: int, only_b: int, both: int = 50) -> tuple[np.ndarray, np.ndarray]:
    a = np.r_[np.ones(only_a), np.zeros(only_b), np.ones(both)].astype(bool)
    b = np.r_[np.zeros(only_a), np.ones(only_b), np.ones(both)].astype(bool)
    return a, b


@given(st.integers(0, 40), st.integers(0, 40))
@settings(deadline=None)
def test_exact_mcnemar_is_the_sign_test(only_a: int, only_b: int) -> None:
    found = mcnemar(*discordant(only_a, only_b))
    expected = stats.binomtest(only_a, only_a + only_b).pvalue if only_a + only_b else 1.0
    assert found.p_value == pytest.approx(expected)
    assert (found.statistic, found.n) == (min(only_a, only_b), only_a + only_b)
    mid = mcnemar(*discordant(only_a, only_b), method="mid-p")
    assert 0 < mid.p_value <= found.p_value


def test_mid_p_by_hand() -> None:
    # n = 5, smaller = 1: exact 2 * 6/32, mid-p takes one pmf of 5/32 off.
    assert mcnemar(*discordant(4, 1)).p_value == pytest.approx(12 / 32)
    assert mcnemar(*discordant(4, 1), method="mid-p").p_value == pytest.approx(7 / 32)


def test_a_fifth_of_a_point_on_six_thousand_pairs_is_noise() -> None:
    assert mcnemar(*discordant(28, 18, 5954)).p_value > 0.1
    assert mcnemar(*discordant(60, 18, 5922)).p_value < 1e-4


def test_friedman_and_wilcoxon_are_scipys() -> None:
    table = np.random.default_rng(0).random((20, 4)) + np.array([0, 0.1, 0.2, 0.5])
    found = friedman(table)
    statistic, p = stats.friedmanchisquare(*table.T)
    assert (found.statistic, found.p_value) == pytest.approx((statistic, p))
    assert wilcoxon(table[:, 0], table[:, 3]).p_value == pytest.approx(
        stats.wilcoxon(table[:, 0], table[:, 3]).pvalue
    )
    assert friedman(np.ones((5, 3))).p_value == 1.0
    assert wilcoxon([1, 2], [1, 2]).p_value == 1.0


def test_holm_by_hand_and_in_order() -> None:
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(holm([0.9, 0.8]), [1.0, 1.0])
    assert holm([]).size == 0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
@settings(deadline=None)
def test_holm_only_raises_and_keeps_the_order(p_values: list[float]) -> None:
    p, adjusted = np.array(p_values), holm(p_values)
    assert (adjusted >= p).all() and (adjusted <= np.minimum(1, p * p.size) + 1e-12).all()
    order = np.argsort(p, kind="stable")
    assert (np.diff(adjusted[order]) >= 0).all()


def test_all_against_all_is_adjusted() -> None:
    table = np.random.default_rng(1).random((12, 3)) + np.array([0, 0, 2])
    found = compare_all(table, ["a", "b", "c"])
    assert [(d.first, d.second) for d in found] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert all(d.adjusted >= d.test.p_value for d in found)
    assert found[0].adjusted > 0.05 > found[1].adjusted


def test_bad_tables_are_refused() -> None:
    with pytest.raises(MetricError, match="3 models"):
        friedman(np.ones((5, 2)))
    with pytest.raises(MetricError, match="NaN"):
        friedman(np.full((5, 3), np.nan))
    with pytest.raises(MetricError, match="equal length"):
        wilcoxon([1, 2], [1])
    with pytest.raises(MetricError, match="p-values"):
        holm([0.5, np.nan])
    with pytest.raises(MetricError, match="names"):
        compare_all(np.ones((3, 2)), ["a"])
    with pytest.raises(MetricError, match="one pair"):
        mcnemar([], [])
