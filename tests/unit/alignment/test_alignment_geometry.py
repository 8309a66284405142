"""Similarity transforms and templates: closed form, known frames, degenerate input."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxfr.alignment.geometry import coverage, similarity_transform, transform_points, warp
from onnxfr.alignment.templates import TEMPLATES, check_size, warp_between
from onnxfr.errors import AlignmentError, UnknownName

ARCFACE = TEMPLATES.get("arcface")


@given(
    angle=st.floats(-3.1, 3.1),
    scale=st.floats(0.05, 20),
    shift=st.tuples(st.floats(-500, 500), st.floats(-500, 500)),
)
def test_an_exact_similarity_is_recovered(
    angle: float, scale: float, shift: tuple[float, float]
) -> None:
    turn = scale * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    points = ARCFACE.points()
    matrix = similarity_transform(points, points @ turn.T + np.array(shift))
    assert np.allclose(matrix[:, :2], turn, atol=1e-8)
    assert np.allclose(matrix[:, 2], shift, atol=1e-6)


def test_it_is_the_least_squares_answer_of_a_linear_solver() -> None:
    rng = np.random.default_rng(3)
    source, target = rng.normal(size=(5, 2)) * 40, rng.normal(size=(5, 2)) * 30
    x, y = source.T
    zero, one = np.zeros(5), np.ones(5)
    system = np.vstack([np.c_[x, -y, one, zero], np.c_[y, x, zero, one]])
    a, b, right, down = np.linalg.lstsq(system, np.r_[target[:, 0], target[:, 1]], rcond=None)[0]
    expected = [[a, -b, right], [b, a, down]]
    assert np.allclose(similarity_transform(source, target), expected)


def test_a_stack_gives_what_each_face_gives_alone() -> None:
    faces = np.random.default_rng(0).normal(size=(7, 5, 2)) * 20 + 100
    stack = similarity_transform(faces, ARCFACE.points())
    assert stack.shape == (7, 2, 3)
    for face, matrix in zip(faces, stack, strict=True):
        assert np.allclose(similarity_transform(face, ARCFACE.points()), matrix)


def test_a_mirrored_face_is_never_answered_by_a_reflection() -> None:
    points = ARCFACE.points()
    matrix = similarity_transform(points * np.array([-1, 1]), points)
    assert np.linalg.det(matrix[:, :2]) > 0


@pytest.mark.parametrize("value", [0.0, 7.0, np.nan, np.inf])
def test_degenerate_landmarks_are_refused(value: float) -> None:
    with pytest.raises(AlignmentError, match="degenerate"):
        similarity_transform(np.full((5, 2), value), ARCFACE.points())


def test_warp_is_bilinear_and_black_outside() -> None:
    ramp = np.repeat(np.arange(0, 200, 10, dtype=np.uint8)[None, :, None], 20, axis=0)
    ramp = np.repeat(ramp, 3, axis=2)
    shifted = warp(ramp, np.array([[1.0, 0, 0.5], [0, 1.0, 0]]), (20, 24))
    assert shifted.shape == (20, 24, 3)
    assert (shifted[5, 5] == 45).all()
    assert (shifted[:, 22:] == 0).all()


def test_arcface_frames_of_the_usual_sizes() -> None:
    base = ARCFACE.points((112, 112))
    assert base[0].tolist() == [38.2946, 51.6963]
    assert np.allclose(ARCFACE.points((112, 96)), base - [8, 0])
    assert np.allclose(ARCFACE.points((160, 160)), base * 160 / 112)
    assert np.allclose(ARCFACE.points((224, 224)), base * 2)
    assert np.allclose(ARCFACE.points((256, 256)), (base - [-8, 0]) * 2)


def test_dlib_chip_agrees_with_dlibs_own_eye_corners() -> None:
    corners = np.array(
        [[0.859567, 0.213498], [0.64606, 0.228967], [0.120575, 0.213727], [0.334085, 0.229064]]
    )
    chip = (corners + 0.25) / 1.5 * 150
    right, left = chip[:2].mean(axis=0), chip[2:].mean(axis=0)
    points = TEMPLATES.get("dlib").points()
    assert np.abs(points[:2] - [left, right]).max() < 2
    assert np.allclose(TEMPLATES.get("dlib").points((300, 300)), points * 2)


def test_between_sizes_of_one_template_the_map_is_exact() -> None:
    cut = warp_between(ARCFACE, (112, 112), ARCFACE, (112, 96))
    assert np.allclose(cut, [[1, 0, -8], [0, 1, 0]], atol=1e-9)
    double = warp_between(ARCFACE, (112, 112), ARCFACE, (224, 224))
    assert np.allclose(transform_points(double, ARCFACE.points()), ARCFACE.points((224, 224)))


def test_coverage_tells_what_a_crop_cannot_supply() -> None:
    dlib = TEMPLATES.get("dlib")
    there = warp_between(ARCFACE, (112, 112), dlib, (150, 150))
    back = warp_between(dlib, (150, 150), ARCFACE, (112, 112))
    assert 0.85 < coverage(there, (112, 112), (150, 150)) < 1
    assert coverage(back, (150, 150), (112, 112)) < 0.9
    assert coverage(np.eye(2, 3), (112, 112), (112, 112)) == 1


def test_impossible_requests_are_named() -> None:
    with pytest.raises(AlignmentError, match="whole"):
        TEMPLATES.get("whole").points()
    with pytest.raises(AlignmentError, match="between 16 and 2048"):
        check_size((4, 112))
    with pytest.raises(UnknownName, match="arcface"):
        TEMPLATES.get("arcfac")


def test_sizes_share_a_frame_where_one_crop_is_the_other_resized_or_cut() -> None:
    arcface, dlib = TEMPLATES.get("arcface"), TEMPLATES.get("dlib")
    common = arcface.frame((112, 112))
    assert all(arcface.frame(size) == common for size in ((112, 96), (160, 160), (250, 250)))
    assert arcface.frame((128, 128)) == arcface.frame((256, 256)) != common
    assert dlib.frame((150, 150)) == dlib.frame((224, 224)) != common
    assert TEMPLATES.get("whole").frame((112, 112)) == ("whole",)
