"""Detector and aligner on real photographs: scales, rotations, crowds, nothing at all."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from onnxfr.alignment.aligner import (
    AlignedFace,
    Aligner,
    Alignment,
    Outcome,
    Rejection,
    align_images,
)
from onnxfr.alignment.detector import Detector, Face, main_face, overlap
from onnxfr.alignment.geometry import transform_points
from onnxfr.alignment.pool import ordered_map
from onnxfr.alignment.templates import TEMPLATES
from onnxfr.data.images import decode
from onnxfr.errors import AlignmentError, SpecError
from onnxfr.types import Pixels


def aligned(detector: Detector, pixels: NDArray[Any]) -> AlignedFace:
    result = Aligner(detector=detector).align(np.asarray(pixels, np.uint8))
    assert isinstance(result, AlignedFace)
    return result


def box(x: float, y: float, side: float) -> Face:
    return Face((x, y, side, side), 0.9, np.zeros((5, 2)))


def test_every_photograph_gives_a_crop_on_the_template(
    detector: Detector, photographs: list[Path]
) -> None:
    for path in photographs:
        result = aligned(detector, decode(path.read_bytes(), path.name))
        assert result.pixels.shape == (112, 112, 3)
        assert result.pixels.dtype == np.uint8
        assert result.landmarks is not None
        assert np.abs(result.landmarks - TEMPLATES.get("arcface").points()).mean() < 5


@pytest.mark.parametrize("scale", [0.3, 2.0, 6.0])
def test_the_picture_s_size_does_not_move_the_landmarks(
    detector: Detector, portrait: Pixels, scale: float
) -> None:
    how = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    resized = cv2.resize(portrait, None, fx=scale, fy=scale, interpolation=how)
    before, after = aligned(detector, portrait), aligned(detector, resized)
    assert before.face is not None
    assert after.face is not None
    moved = transform_points(before.matrix, after.face.landmarks / scale)
    assert before.landmarks is not None
    assert np.linalg.norm(moved - before.landmarks, axis=1).max() < 6


def test_tilted_heads_are_set_upright(detector: Detector, photographs: list[Path]) -> None:
    errors = []
    for path in photographs[:6]:
        portrait = decode(path.read_bytes(), path.name)
        turn = cv2.getRotationMatrix2D((124.5, 124.5), 30, 1)
        tilted = aligned(detector, cv2.warpAffine(portrait, turn, (250, 250)))
        upright = aligned(detector, portrait)
        assert tilted.face is not None
        assert upright.landmarks is not None
        back = np.asarray(cv2.invertAffineTransform(turn), np.float64)
        points = transform_points(back, tilted.face.landmarks)
        errors.append(np.abs(transform_points(upright.matrix, points) - upright.landmarks).mean())
    assert np.median(errors) < 4


def test_the_face_fills_a_tight_crop(detector: Detector, shared_data: Path) -> None:
    path = next((shared_data / "lfw_112").rglob("*.jpg"))
    tight = decode(path.read_bytes(), path.name)[16:100, 6:90]
    for scale in (1, 8):
        assert not Aligner(detector=detector).align(np.kron(tight, _block(scale))).rejected


def _block(scale: int) -> Pixels:
    return np.ones((scale, scale, 1), np.uint8)


def test_no_face_and_tiny_face_are_outcomes(detector: Detector, portrait: Pixels) -> None:
    aligner = Aligner(detector=detector)
    for shape in ((1, 5000, 3), (3, 3, 3), (200, 300, 3)):
        nothing = aligner.align(np.full(shape, 90, np.uint8))
        assert isinstance(nothing, Rejection)
        assert (nothing.outcome, nothing.rejected, nothing.faces) == (Outcome.NO_FACE, True, 0)
    tiny = Aligner(detector=detector, min_face=500).align(portrait)
    assert isinstance(tiny, Rejection)
    assert tiny.outcome is Outcome.TINY_FACE
    assert tiny.face is not None
    assert "500" in tiny.reason


def test_of_several_faces_the_largest_central_one_is_taken(
    detector: Detector, photographs: list[Path]
) -> None:
    one, other = (decode(path.read_bytes(), path.name) for path in photographs[:2])
    crowd = np.zeros((250, 500, 3), np.uint8)
    crowd[:, 125:375] = one
    crowd[60:185, 375:] = cv2.resize(other, (125, 125), interpolation=cv2.INTER_AREA)
    result = aligned(detector, crowd)
    assert result.several
    assert result.face is not None
    assert 125 < result.face.landmarks[:, 0].mean() < 375


def test_the_selection_rule_weighs_area_against_distance() -> None:
    large_aside, small_central = box(0, 0, 60), box(90, 90, 40)
    assert main_face([large_aside, small_central], (220, 220)) is small_central
    assert main_face([large_aside, small_central], (60, 60)) is large_aside
    assert overlap((0, 0, 2, 2), (1, 0, 2, 2)) == pytest.approx(1 / 3)


def test_whole_only_resizes(portrait: Pixels) -> None:
    result = Aligner("whole", (60, 50)).align(portrait)
    assert isinstance(result, AlignedFace)
    assert result.pixels.shape == (60, 50, 3)
    assert result.landmarks is None
    corner = transform_points(result.matrix, np.array([[-0.5, -0.5], [249.5, 249.5]]))
    assert np.allclose(corner, [[-0.5, -0.5], [49.5, 59.5]])


def test_parallel_alignment_keeps_order_and_pixels(
    detector: Detector, photographs: list[Path]
) -> None:
    pictures = [decode(path.read_bytes(), path.name) for path in photographs[:6]]
    pictures.insert(2, np.zeros((64, 64, 3), np.uint8))
    aligner = Aligner(detector=detector)
    seen: list[Alignment] = []
    results = list(align_images(pictures, aligner, workers=3, progress=seen.append))
    assert seen == results
    assert [result.rejected for result in results] == [False, False, True, *[False] * 4]
    for picture, result in zip(pictures, results, strict=True):
        alone = aligner.align(picture)
        if isinstance(result, AlignedFace) and isinstance(alone, AlignedFace):
            assert np.array_equal(result.pixels, alone.pixels)


def test_the_pool_reads_only_a_little_ahead() -> None:
    taken = 0

    def source() -> Iterator[int]:
        nonlocal taken
        while taken < 1000:
            taken += 1
            yield taken

    results = ordered_map(lambda item: item, source(), workers=2)
    assert [next(results) for _ in range(5)] == [1, 2, 3, 4, 5]
    results.close()
    assert taken <= 9
    assert not any(t.name.startswith("align") for t in threading.enumerate())
    with pytest.raises(SpecError, match="at least 1"):
        list(ordered_map(str, [1], workers=0))


def test_unusable_detectors_are_one_clear_error(shared_data: Path, tmp_path: Path) -> None:
    with pytest.raises(AlignmentError, match="found none"):
        Detector(tmp_path / "absent.onnx")
    (tmp_path / "noise.onnx").write_bytes(b"\x08\x07 not a network")
    with pytest.raises(AlignmentError, match="expected a YuNet"):
        Detector(tmp_path / "noise.onnx")
    with pytest.raises(AlignmentError, match="expected a YuNet"):
        Detector(shared_data / "models" / "onnx" / "mobilefacenet_y1_from_mxnet.onnx")


def test_wrong_arrays_are_refused(detector: Detector) -> None:
    wrongs: list[NDArray[Any]] = [
        np.zeros((9, 9), np.uint8),
        np.zeros((9, 9, 3)),
        np.zeros((0, 9, 3), np.uint8),
    ]
    for wrong in wrongs:
        with pytest.raises(AlignmentError, match="uint8 picture"):
            detector.detect(wrong)
