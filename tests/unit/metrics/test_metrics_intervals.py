"""Intervals: printed examples, SciPy as referee, and what must hold for every count."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from onnxfr.errors import MetricError
from onnxfr.metrics.intervals import Estimate, clopper_pearson, rate, rule_of_three, wilson

counts = st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@pytest.mark.parametrize(
    ("successes", "n", "low", "high", "digits"),
    [
        (0.9983 * 6000, 6000, 0.9969, 0.9991, 4),
        (90, 100, 0.826, 0.945, 3),
        (97, 98, 0.944, 0.998, 3),
        (86, 98, 0.798, 0.929, 3),
    ],
)
def test_wilson_gives_the_printed_examples(
    successes: float, n: int, low: float, high: float, digits: int
) -> None:
    found = wilson(successes, n)
    assert (round(found.low, digits), round(found.high, digits)) == (low, high)


@given(counts, st.sampled_from([0.8, 0.95, 0.99]))
@settings(deadline=None)
def test_intervals_hold_the_value_and_agree_with_scipy(
    count: tuple[int, int], level: float
) -> None:
    successes, n = count
    referee = stats.binomtest(successes, n)
    for ours, method in ((wilson, "wilson"), (clopper_pearson, "exact")):
        found = ours(successes, n, level)
        theirs = referee.proportion_ci(level, method)
        assert 0 <= found.low <= found.value <= found.high <= 1
        assert found.low == pytest.approx(theirs.low, abs=1e-9)
        assert found.high == pytest.approx(theirs.high, abs=1e-9)


@given(counts)
@settings(deadline=None)
def test_the_complement_mirrors_the_interval(count: tuple[int, int]) -> None:
    successes, n = count
    mirrored, direct = wilson(successes, n).complement(), wilson(n - successes, n)
    assert mirrored.low == pytest.approx(direct.low, abs=1e-12)
    assert mirrored.high == pytest.approx(direct.high, abs=1e-12)


def test_no_trial_is_total_ignorance() -> None:
    for found in (wilson(0, 0), clopper_pearson(0, 0), rate([])):
        assert math.isnan(found.value)
        assert (found.low, found.high, found.n) == (0.0, 1.0, 0)


def test_an_estimate_prints_and_serialises() -> None:
    found = wilson(90, 100)
    assert str(found) == "0.9000 [0.8256, 0.9448] (n=100)"
    assert Estimate(**found.as_dict()) == found  # type: ignore[arg-type]


def test_rule_of_three_bounds_the_exact_one_sided_limit() -> None:
    for n in (30, 100, 3000):
        assert rule_of_three(n) == pytest.approx(1 - 0.05 ** (1 / n), rel=0.06)
    with pytest.raises(MetricError):
        rule_of_three(0)


@pytest.mark.parametrize(("successes", "n", "level"), [(-1, 5, 0.95), (6, 5, 0.95), (1, 5, 1.0)])
def test_impossible_counts_are_refused(successes: int, n: int, level: float) -> None:
    for interval in (wilson, clopper_pearson):
        with pytest.raises(MetricError):
            interval(successes, n, level)


def test_rate_refuses_what_is_not_a_flag() -> None:
    with pytest.raises(MetricError, match="0 or 1"):
        rate([0, 1, 2])
    with pytest.raises(MetricError, match="one dimension"):
        rate(np.zeros((2, 2), bool))
