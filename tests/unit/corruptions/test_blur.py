"""Blurs keep the light and spread it where they should."""

from __future__ import annotations

import numpy as np
import pytest

from onnxfr.corruptions import SEVERITIES, corrupt
from onnxfr.corruptions._pixels import smear, stretch, zoom_positions
from onnxfr.corruptions.blur import disk, zoom_maps


@pytest.mark.parametrize(("radius", "side"), [(3, 9), (4, 11), (6, 15), (8, 17), (10, 21)])
def test_disk_is_normalised_symmetric_and_trimmed(radius: int, side: int) -> None:
    kernel = disk(radius, 0.5)
    # The softened rim of the largest radii falls off the published grid.
    assert kernel.sum() == pytest.approx(1, abs=0.03)
    assert kernel == pytest.approx(kernel.T) and kernel == pytest.approx(kernel[::-1])
    assert kernel.shape == (side, side)


def test_smear_moves_light_one_way_along_the_angle() -> None:
    plane = np.zeros((101, 101), dtype=np.float32)
    plane[50, 50] = 1
    out = smear(plane, 10, 3, 0)
    assert out.sum() == pytest.approx(1, abs=1e-4)
    assert np.count_nonzero(out.sum(axis=1)) == 1
    assert (out[50, 51:] == 0).all() and out[50, 49] > 0
    down = smear(plane, 10, 3, 90)
    assert np.count_nonzero(down.sum(axis=0)) == 1


def test_smear_replicates_the_edge() -> None:
    plane = np.tile(np.arange(64, dtype=np.float32)[:, None], (1, 64))
    assert smear(plane, 20, 15, 0) == pytest.approx(plane, abs=1e-3)


@pytest.mark.parametrize("name", ["motion_blur", "zoom_blur", "facial_distortion"])
def test_a_plain_picture_stays_plain(name: str) -> None:
    images = np.full((1, 112, 96, 3), 90, dtype=np.uint8)
    for severity in SEVERITIES:
        out = corrupt(images, name, severity, ids=["x"]).astype(int)
        assert np.abs(out - 90).max() <= 1


def test_zoom_keeps_corners_and_covers_the_frame() -> None:
    for side in (64, 96, 112, 250):
        for factor in (1.01, 1.3, 2.5, 4.5):
            start, length, positions = zoom_positions(side, factor)
            assert positions[0] == 0 and positions[-1] == pytest.approx(length - 1, abs=1e-4)
            assert len(positions) >= side and 0 <= start <= side - length


def test_zoom_factors_are_those_of_the_published_ranges() -> None:
    ranges = ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03))
    published = [len(np.arange(1, stop, step)) for stop, step in ranges]
    assert [len(zoom_maps(112, 112, *row)) + 1 for row in ranges] == published


def test_stretch_is_bilinear() -> None:
    plane = np.array([[[0, 1], [2, 3]]], dtype=np.float32)
    at = np.array([0, 0.5, 1], dtype=np.float32)
    expected = [[0, 0.5, 1], [1, 1.5, 2], [2, 2.5, 3]]
    assert stretch(plane, at, at)[0] == pytest.approx(np.array(expected))
