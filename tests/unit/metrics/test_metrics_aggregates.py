"""API rates and corruption aggregates: identities and the papers' printed tables."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxfr.errors import MetricError
from onnxfr.metrics.api import api_rates, overall_accuracy
from onnxfr.metrics.corruption import (
    above_chance,
    corruption_ratio,
    corruption_summary,
    relative_error,
    table_mean,
)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60))
@settings(deadline=None)
def test_aa_is_asa_times_the_answered_share(outcomes: list[tuple[bool, bool]]) -> None:
    correct, rejected = zip(*outcomes, strict=True)
    found = api_rates(correct, rejected)
    if all(rejected):
        assert math.isnan(found.asa.value) and found.aa.value == 0
    else:
        assert found.aa.value == pytest.approx(overall_accuracy(found.asa.value, found.rr.value))


def test_api_rates_by_hand() -> None:
    found = api_rates([1, 1, 0, 1], [0, 0, 0, 1])
    assert (found.rr.value, found.asa.value, found.aa.value) == (0.25, 2 / 3, 0.5)
    assert (found.rr.n, found.asa.n, found.aa.n) == (4, 3, 4)


def test_the_printed_aliyun_spatter_accuracy_is_a_misprint() -> None:
    implied = overall_accuracy(asa=0.9973, rr=0.1249)
    assert round(100 * implied, 2) == 87.27
    assert round(100 * implied, 2) != 67.27


def test_api_refuses_nonsense() -> None:
    with pytest.raises(MetricError, match="no pairs"):
        api_rates([], [])
    with pytest.raises(MetricError, match="3 elements"):
        api_rates([1], [0, 0, 0])
    for asa, rr in ((99.73, 0.1), (0.5, -0.1), (math.nan, 0.1)):
        with pytest.raises(MetricError, match="ASA and RR"):
            overall_accuracy(asa, rr)


TABLE = np.array(
    [[0.9, 0.8, 0.7, 0.6, 0.5], [0.95, 0.95, 0.9, 0.9, 0.8], [1.0, 1.0, 1.0, 1.0, 1.0]]
)
NAMES = ["fog", "snow", "jpeg"]


def test_summary_by_hand() -> None:
    found = corruption_summary(0.98, TABLE, NAMES, {"weather": ["fog", "snow"], "data": ["jpeg"]})
    assert found.per_condition == pytest.approx({"fog": 0.7, "snow": 0.9, "jpeg": 1.0})
    assert found.per_category == pytest.approx({"weather": 0.8, "data": 1.0})
    assert found.mean == pytest.approx(2.6 / 3)
    assert found.relative_error == pytest.approx((0.98 - 2.6 / 3) / 0.98)
    assert found.above_chance == pytest.approx((2.6 / 3 - 0.5) / 0.48)
    np.testing.assert_allclose(found.per_severity, TABLE.mean(axis=0))


def test_the_two_averaging_conventions_differ_by_the_clean_row() -> None:
    without = table_mean(0.98, TABLE, include_clean=False)
    including = table_mean(0.98, TABLE, include_clean=True)
    assert without == pytest.approx(2.6 / 3)
    assert including == pytest.approx((2.6 + 0.98) / 4)
    found = corruption_summary(0.98, TABLE, NAMES, include_clean=True)
    assert found.mean == pytest.approx(including)


def test_relative_and_above_chance_forms() -> None:
    assert relative_error(0.8, 0.6) == pytest.approx(0.25)
    assert relative_error(0.8, 0.9) < 0
    assert above_chance(0.9, 0.9) == 1 and above_chance(0.9, 0.5) == 0
    assert corruption_ratio(TABLE[:2], TABLE[:2]) == 1.0
    assert corruption_ratio(1 - (1 - TABLE[:2]) / 2, TABLE[:2]) == pytest.approx(0.5)


def test_a_clean_model_at_chance_has_no_above_chance_form() -> None:
    assert math.isnan(corruption_summary(0.5, TABLE, NAMES).above_chance)
    with pytest.raises(MetricError, match="chance"):
        above_chance(0.5, 0.4)


def test_incomplete_or_impossible_tables_are_refused() -> None:
    with pytest.raises(MetricError, match="NaN"):
        corruption_summary(0.9, np.where(TABLE == 0.9, np.nan, TABLE), NAMES)
    with pytest.raises(MetricError, match="fractions"):
        corruption_summary(0.9, TABLE * 100, NAMES)
    with pytest.raises(MetricError, match="one row per condition"):
        corruption_summary(0.9, TABLE, NAMES[:2])
    with pytest.raises(MetricError, match="frost"):
        corruption_summary(0.9, TABLE, NAMES, {"weather": ["frost"]})
    with pytest.raises(MetricError, match="baseline"):
        corruption_ratio(TABLE, TABLE)
    with pytest.raises(MetricError, match="same complete"):
        corruption_ratio(TABLE, TABLE[:2])
    with pytest.raises(MetricError, match="clean accuracy of 0"):
        relative_error(0.0, 0.0)
    with pytest.raises(MetricError, match="fraction"):
        relative_error(99.0, 50.0)
