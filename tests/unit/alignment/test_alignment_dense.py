"""The 106-point index map and the licence question; the integration test runs the network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnxfr.alignment.dense import COUNT, REGIONS, DenseLandmarks, five_points, without_jaw
from onnxfr.errors import AlignmentError, LicenceError


def test_the_regions_partition_the_points() -> None:
    indexes = sorted(index for part in REGIONS.values() for index in part)
    assert indexes == list(range(COUNT))
    assert len(REGIONS["jaw"]) == 33
    assert sorted((*without_jaw(), *REGIONS["jaw"])) == indexes


def test_five_points_come_from_their_regions() -> None:
    points = np.zeros((COUNT, 2))
    for number, name in enumerate(("left_eye", "right_eye", "nose", "mouth")):
        points[list(REGIONS[name])] = number
    assert five_points(points)[:, 0].tolist() == [0, 1, 2, 3, 3]


def test_the_weights_need_a_yes() -> None:
    with pytest.raises(LicenceError, match="non-commercial"):
        DenseLandmarks()


def test_wrong_files_are_one_clear_error(tmp_path: Path, shared_data: Path) -> None:
    with pytest.raises(AlignmentError, match="found none"):
        DenseLandmarks(tmp_path / "absent.onnx")
    (tmp_path / "noise.onnx").write_bytes(b"noise")
    with pytest.raises(AlignmentError, match="not a readable ONNX"):
        DenseLandmarks(tmp_path / "noise.onnx")
