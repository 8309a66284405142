"""Where the landmark network looks for the face in crops of every template."""

from __future__ import annotations

import numpy as np
import pytest

from onnxfr.alignment.geometry import similarity_transform
from onnxfr.alignment.templates import TEMPLATES
from onnxfr.errors import AlignmentError
from onnxfr.evaluators.landmarks import face_box

Size = tuple[int, int]


@pytest.mark.parametrize(
    ("size", "box"),
    [
        ((112, 112), (1, 10, 110, 110)),
        ((112, 96), (-7, 10, 110, 110)),
        ((224, 224), (2, 20, 220, 220)),
        ((128, 128), (8 / 7, 80 / 7, 880 / 7, 880 / 7)),
    ],
)
def test_crops_brought_to_a_size_hold_the_face_where_arcface_has_it(
    size: Size, box: tuple[float, ...]
) -> None:
    assert face_box(size) == pytest.approx(box, abs=1e-5)


@pytest.mark.parametrize(
    ("template", "size"),
    [
        *(("arcface", size) for size in ((112, 112), (112, 96), (160, 160), (128, 128))),
        *(("dlib", size) for size in ((150, 150), (300, 300))),
    ],
)
def test_the_box_lies_about_the_five_points_as_it_does_in_arcfaces_crops(
    template: str, size: Size
) -> None:
    """Eyes, nose and mouth are where the network has seen them, whatever the frame."""
    x, y, wide, tall = face_box(size, template)
    assert wide == tall
    inside = (TEMPLATES.get(template).points(size) - (x, y)) / wide
    usual = (TEMPLATES.get("arcface").points((112, 112)) - (1, 10)) / 110
    moved = similarity_transform(usual, inside)
    np.testing.assert_allclose(moved, [[1, 0, 0], [0, 1, 0]], atol=0.01)


def test_a_whole_picture_has_no_place_for_the_face() -> None:
    with pytest.raises(AlignmentError, match="has no landmarks"):
        face_box((112, 112), "whole")
