"""Bootstrap over identities: its weights, agreement with plain metrics, coverage, seeds."""

from __future__ import annotations

import numpy as np
import pytest

from onnxfr.errors import MetricError
from onnxfr.metrics.bootstrap import bootstrap, bootstrap_difference, identity_weights
from onnxfr.metrics.intervals import wilson
from onnxfr.metrics.protocols import kfold_accuracy
from onnxfr.metrics.verification import at_fmr
from onnxfr.metrics.weighted import (
    weighted_fnmr_at_fmr,
    weighted_kfold_accuracy,
    weighted_median,
    weighted_rate,
)


def pair_data(seed: int, n: int = 300) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 60, n)
    same = np.arange(n) % 2 == 0
    second = np.where(same, first, (first + rng.integers(1, 60, n)) % 60)
    scores = np.clip(rng.normal(np.where(same, 0.5, 0.1), 0.15), -1, 1)
    return scores, same, first, second


def test_weights_are_multiplicities_and_their_products() -> None:
    first, second = np.array(["a", "b", "c", "a"]), np.array(["a", "b", "c", "b"])
    weights = np.concatenate(list(identity_weights(first, second, seed=1, resamples=500)))
    assert weights.shape == (500, 4)
    assert (weights[:, :3].sum(axis=1) == 3).all()
    np.testing.assert_array_equal(weights[:, 3], weights[:, 0] * weights[:, 1])
    assert weights[:, 0].mean() == pytest.approx(1.0, abs=0.15)


def test_unit_weights_give_the_plain_metrics() -> None:
    scores, same, _, _ = pair_data(0)
    rejected = np.arange(300) % 37 == 0
    ones = np.ones((2, 300))
    accepted = scores > 0.3
    np.testing.assert_allclose(weighted_rate(accepted, same)(ones), accepted[same].mean())
    np.testing.assert_allclose(
        weighted_kfold_accuracy(scores, same, rejected=rejected)(ones),
        kfold_accuracy(scores, same, rejected=rejected).accuracy.value,
    )
    for target in (0.01, 0.05, 0.3):
        np.testing.assert_allclose(
            weighted_fnmr_at_fmr(scores, same, target, rejected=rejected)(ones),
            at_fmr(scores, same, target, rejected).fnmr.value,
        )


def test_statistics_may_share_what_was_drawn() -> None:
    scores, _, first, second = pair_data(3)
    drawn = list(identity_weights(first, second, seed=4, resamples=50))
    for statistic in (weighted_rate(scores > 0.2), weighted_rate(scores > 0.4)):
        shared = bootstrap(statistic, first, second, seed=4, resamples=50, drawn=drawn)
        assert shared == bootstrap(statistic, first, second, seed=4, resamples=50)


def test_integer_weights_are_repeated_pairs() -> None:
    scores, same, _, _ = pair_data(2, 120)
    weights = np.random.default_rng(0).integers(0, 4, 120)
    repeated = np.repeat(np.arange(120), weights)
    fold = np.arange(120) // 12
    found = weighted_kfold_accuracy(scores, same, fold=fold)(weights[None].astype(float))
    plain = kfold_accuracy(scores[repeated], same[repeated], fold=fold[repeated])
    assert found[0] == pytest.approx(plain.accuracy.value)
    found = weighted_fnmr_at_fmr(scores, same, 0.1)(weights[None].astype(float))
    plain_point = at_fmr(scores[repeated], same[repeated], 0.1)
    assert found[0] == pytest.approx(plain_point.fnmr.value)


@pytest.mark.parametrize("method", ["percentile", "bca"])
def test_the_interval_holds_the_value_and_repeats_with_its_seed(method: str) -> None:
    scores, same, first, second = pair_data(1)
    statistic = weighted_rate((scores > 0.3) == same)
    found = bootstrap(statistic, first, second, seed=7, resamples=400, method=method)  # type: ignore[arg-type]
    again = bootstrap(statistic, first, second, seed=7, resamples=400, method=method)  # type: ignore[arg-type]
    other = bootstrap(statistic, first, second, seed=8, resamples=400, method=method)  # type: ignore[arg-type]
    assert found == again != other
    assert found.low < found.value < found.high
    assert found.method == f"identity-bootstrap-{method}"
    assert found.n == 300


def test_distinct_identities_reduce_to_the_binomial_width() -> None:
    hits = np.arange(400) % 5 != 0
    people = np.arange(400)
    found = bootstrap(weighted_rate(hits), people, people, seed=0)
    binomial = wilson(int(hits.sum()), 400)
    assert found.low == pytest.approx(binomial.low, abs=0.012)
    assert found.high == pytest.approx(binomial.high, abs=0.012)


def test_clustered_errors_are_covered_where_pairs_alone_mislead() -> None:
    covered = naive = 0
    for trial in range(120):
        rng = np.random.default_rng(trial)
        person = np.repeat(np.arange(50), 8)
        hits = rng.random(400) < np.repeat(rng.beta(1.6, 0.4, 50), 8)
        found = bootstrap(weighted_rate(hits), person, person, seed=trial, resamples=300)
        covered += found.low <= 0.8 <= found.high
        plain = wilson(int(hits.sum()), 400)
        naive += plain.low <= 0.8 <= plain.high
    assert covered >= 0.88 * 120
    assert naive <= 0.8 * 120


def test_impostor_pairs_are_covered_when_both_people_matter() -> None:
    covered = 0
    for trial in range(80):
        rng = np.random.default_rng(1000 + trial)
        first, second = rng.integers(0, 40, 600), rng.integers(0, 39, 600)
        second = second + (second >= first)
        lamb = rng.normal(0, 1, 40)
        noise = rng.normal(0, 1, 600)
        hits = lamb[first] + lamb[second] + noise > 0
        found = bootstrap(weighted_rate(hits), first, second, seed=trial, resamples=200)
        covered += found.low <= 0.5 <= found.high
    assert covered >= 0.88 * 80


def test_a_paired_difference_is_narrower_than_either_and_zero_for_twins() -> None:
    scores, same, first, second = pair_data(3, 600)
    noisy = np.clip(scores + np.random.default_rng(0).normal(0, 0.02, 600), -1, 1)
    a, b = weighted_rate((scores > 0.3) == same), weighted_rate((noisy > 0.3) == same)
    single = bootstrap(a, first, second, seed=0)
    gap = bootstrap_difference(a, b, first, second, seed=0)
    assert gap.high - gap.low < 0.7 * (single.high - single.low)
    assert gap.low <= gap.value <= gap.high
    twins = bootstrap_difference(a, a, first, second, seed=0, resamples=50)
    assert (twins.low, twins.value, twins.high) == (0.0, 0.0, 0.0)


def test_bca_corrects_towards_the_skewed_tail() -> None:
    people = np.arange(200)
    hits = people < 196
    plain = bootstrap(weighted_rate(hits), people, people, seed=0, resamples=4000)
    corrected = bootstrap(weighted_rate(hits), people, people, seed=0, resamples=4000, method="bca")
    assert corrected.low < plain.low


def test_an_infinite_end_is_not_replaced_by_a_finite_one() -> None:
    people = np.arange(100)
    cost = np.where(people < 58, 1.0 + people / 58, np.inf)
    drawn = np.concatenate(list(identity_weights(people, people, seed=0, resamples=1000)))
    share = np.isinf(weighted_median(cost)(drawn)).mean()
    assert share > 0.025, "else this test says nothing"
    found = bootstrap(weighted_median(cost), people, people, seed=0, resamples=1000)
    assert np.isfinite(found.low) and found.high == np.inf


def test_what_cannot_be_resampled_is_refused() -> None:
    statistic = weighted_rate(np.array([True, False]))
    with pytest.raises(MetricError, match="at least two"):
        bootstrap(statistic, ["a", "a"], ["a", "a"], seed=0)
    with pytest.raises(MetricError, match="2 and 1"):
        bootstrap(statistic, ["a", "b"], ["a"], seed=0)
    with pytest.raises(MetricError, match="resamples"):
        bootstrap(statistic, ["a", "b"], ["a", "b"], seed=0, resamples=1)
    rare = weighted_rate(np.array([True, True]), np.array([True, False]))
    with pytest.raises(MetricError, match="undefined"):
        bootstrap(rare, ["a", "b"], ["a", "b"], seed=0)
