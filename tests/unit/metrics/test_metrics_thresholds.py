"""Thresholds: conversions printed in the literature, origins, the resolution guard."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxfr.errors import MetricError
from onnxfr.metrics.thresholds import (
    Resolution,
    Threshold,
    cosine_to_distance,
    distance_to_cosine,
    impostors_needed,
    rate_label,
    resolution,
    threshold_at_eer,
    threshold_at_fmr,
)

# RobFR's natural models: cosine threshold in its configuration, distance threshold in its paper.
ROBFR = {
    "FaceNet": (0.42074, 1.159),
    "SphereFace": (0.34932, 1.301),
    "CosFace": (0.24626, 1.507),
    "ArcFace": (0.28403, 1.432),
    "MobileFace": (0.21117, 1.578),
    "MobileNet": (0.15847, 1.683),
    "MobileNetV2": (0.22667, 1.547),
    "ShuffleNetV1": (0.19073, 1.619),
    "ShuffleNetV2": (0.22404, 1.552),
    "ResNet50": (0.19116, 1.618),
    "Softmax-IR": (0.34233, 1.315),
    "SphereFace-IR": (0.36162, 1.277),
    "AM-IR": (0.45837, 1.083),
    "CosFace-IR": (0.22402, 1.552),
    "ArcFace-IR": (0.27737, 1.445),
}


@pytest.mark.parametrize("model", ROBFR)
def test_the_fifteen_printed_distance_thresholds_follow_from_the_cosines(model: str) -> None:
    cosine, distance = ROBFR[model]
    assert round(cosine_to_distance(cosine), 3) == distance
    assert round(Threshold(cosine, "lfw@oracle").distance, 3) == distance


@given(st.floats(-1, 1))
@settings(deadline=None)
def test_conversion_is_the_identity_there_and_back(cosine: float) -> None:
    assert distance_to_cosine(cosine_to_distance(cosine)) == pytest.approx(cosine, abs=1e-15)
    assert Threshold.from_distance(cosine_to_distance(cosine)).value == pytest.approx(cosine)


def test_accepts_is_strict_and_nan_is_no_match() -> None:
    assert Threshold(0.3).accepts([0.2, 0.3, 0.31, np.nan]).tolist() == [False, False, True, False]


@pytest.mark.parametrize("origin", ["fixed", "lfw@10fold", "lfw@oracle", "cfp-fp@fmr=1e-3"])
def test_origins_that_say_something(origin: str) -> None:
    assert Threshold(0.3, origin).origin == origin


@pytest.mark.parametrize("origin", ["", "somewhere", "lfw@", "@eer", "a b@c", "a@b@c"])
def test_origins_that_say_nothing_are_refused(origin: str) -> None:
    with pytest.raises(MetricError, match="origin"):
        Threshold(0.3, origin)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_threshold_is_finite(value: float) -> None:
    with pytest.raises(MetricError, match="finite"):
        Threshold(value)


def test_rates_are_labelled_as_people_write_them() -> None:
    assert [rate_label(r) for r in (0.1, 0.001, 1e-6, 2.5e-4)] == ["1e-1", "1e-3", "1e-6", "2.5e-4"]


@pytest.mark.parametrize(
    ("target", "impostors", "verdict"),
    [
        (1e-3, 300, Resolution.UNRESOLVED),
        (1e-3, 2999, Resolution.UNRESOLVED),
        (1e-3, 3000, Resolution.COARSE),
        (1e-3, 29_999, Resolution.COARSE),
        (1e-3, 30_000, Resolution.FINE),
        (1e-6, 3000, Resolution.UNRESOLVED),
        (1e-2, 3000, Resolution.FINE),
    ],
)
def test_resolution_guard(target: float, impostors: int, verdict: Resolution) -> None:
    assert resolution(target, impostors) is verdict


def test_needed_impostors_are_whole_numbers_without_float_dust() -> None:
    assert [impostors_needed(10.0**-k) for k in range(1, 8)] == [3 * 10**k for k in range(1, 8)]
    assert impostors_needed(1e-4, 30) == 300_000


def test_threshold_at_fmr_needs_no_genuine_pairs() -> None:
    found = threshold_at_fmr([0.1, 0.2, 0.3, 0.4], [0, 0, 0, 0], 0.25, data="toy")
    assert (found.value, found.origin, found.target) == (0.3, "toy@fmr=2.5e-1~unresolved", 0.25)
    with pytest.raises(MetricError, match="impostor"):
        threshold_at_fmr([0.1], [1], 0.25)
    with pytest.raises(MetricError, match="impostor"):
        threshold_at_fmr([0.1, 0.2], [0, 1], 0.25, rejected=[1, 0])


def test_frozen_threshold_meets_its_target_with_ties() -> None:
    scores = np.repeat([0.5, 0.4, 0.3], [10, 10, 80])
    assert threshold_at_fmr(scores, np.zeros(100, bool), 0.05).value == 0.5
    assert threshold_at_fmr(scores, np.zeros(100, bool), 0.10).value == 0.4


def test_threshold_at_eer_separates_what_is_separable() -> None:
    found = threshold_at_eer([0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1], data="toy")
    assert (found.value, found.origin) == (0.2, "toy@eer")
    with pytest.raises(MetricError):
        threshold_at_eer([0.1, 0.2], [1, 1])
    with pytest.raises(MetricError, match="scored"):
        threshold_at_eer([0.1, 0.2], [1, 0], rejected=[1, 1])


@pytest.mark.parametrize(
    ("impostors", "origin"), [(299, "toy@fmr=1e-2~unresolved"), (300, "toy@fmr=1e-2")]
)
def test_an_origin_claims_no_rate_that_the_impostors_cannot_show(
    impostors: int, origin: str
) -> None:
    scores = np.linspace(-1, 1, impostors)
    assert threshold_at_fmr(scores, np.zeros(impostors), 1e-2, data="toy").origin == origin
