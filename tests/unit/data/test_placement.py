"""Where faces sit in crops, told from real faces put where we want them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from onnxfr.data.pairs import PairSet, open_pairs
from onnxfr.data.placement import misplaced, off_middle, placement_warning
from onnxfr.data.stream import read_all
from onnxfr.types import Pixels


@pytest.fixture(scope="module")
def lfw(shared_data: Path) -> PairSet:
    return open_pairs(f"lfw:{shared_data / 'lfw_112'}", pairs=60)


@pytest.fixture(scope="module")
def crops(lfw: PairSet) -> list[Pixels]:
    return [item for _, item in read_all(lfw) if isinstance(item, np.ndarray)]


def moved(crops: list[Pixels], columns: int) -> list[Pixels]:
    """Return crops with the face so many columns further right, edges repeated."""
    wide = [cv2.copyMakeBorder(each, 0, 0, 32, 32, cv2.BORDER_REPLICATE) for each in crops]
    return [each[:, 32 - columns : 144 - columns] for each in wide]


def test_faces_beside_the_middle_are_found_within_a_column(crops: list[Pixels]) -> None:
    """These crops hold their faces some eight columns left of the middle."""
    found = [112 * (off_middle(moved(crops, columns)) or 0.0) for columns in (-4, 0, 4, 8, 12)]
    np.testing.assert_allclose(found, [-12, -8, -4, 0, 4], atol=1)
    assert misplaced("x", moved(crops, 8)) is None
    assert "4 of 112 columns right" in (misplaced("x", moved(crops, 12)) or "")


def test_other_sizes_and_few_faces(crops: list[Pixels]) -> None:
    large = [cv2.resize(each, (160, 160)) for each in crops]
    assert abs((off_middle(large) or 0.0) * 160 + 8 * 160 / 112) < 1.5
    assert "of 160 columns left" in (misplaced("x", large) or "")
    assert off_middle(crops[:19]) is None and off_middle([]) is None
    assert off_middle(crops[::2]) is not None


def test_what_is_no_face_has_no_place() -> None:
    rng = np.random.default_rng(0)
    slope = np.linspace(0, 255, 112)[None, :, None] + rng.normal(0, 20, (30, 112, 112, 3))
    assert off_middle(list(slope.clip(0, 255).astype(np.uint8))) is None
    assert off_middle([np.zeros((112, 112, 3), np.uint8)] * 30) is None


def test_only_ready_made_crops_are_judged(lfw: PairSet) -> None:
    assert "left of the middle" in (placement_warning(lfw) or "")
    assert placement_warning(replace(lfw, aligned=False)) is None
    assert placement_warning(lfw.subset(range(5))) is None
