"""Wearables sit where the landmarks say."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from onnxfr.alignment.templates import TEMPLATES
from onnxfr.corruptions import corrupt
from onnxfr.corruptions.occluders import TEMPLATE, default_landmarks, similarity
from onnxfr.errors import DataError

LEFT_EYE, RIGHT_EYE, NOSE, LEFT_MOUTH, RIGHT_MOUTH = TEMPLATE


def changed(
    name: str, severity: int, landmarks: NDArray[np.float64] | None = None
) -> NDArray[np.bool_]:
    images = np.full((1, 112, 112, 3), 128, dtype=np.uint8)
    out = corrupt(images, name, severity, ids=["x"], landmarks=landmarks)
    return np.asarray((out != 128).any(axis=-1)[0])


def at(mask: NDArray[np.bool_], point: tuple[float, float]) -> bool:
    return bool(mask[round(point[1]), round(point[0])])


def test_default_landmarks_follow_the_crop() -> None:
    assert default_landmarks(112, 112) == pytest.approx(np.array(TEMPLATE))
    assert default_landmarks(112, 96) == pytest.approx(np.array(TEMPLATE) - (8, 0))
    assert default_landmarks(224, 224) == pytest.approx(np.array(TEMPLATE) * 2)
    assert default_landmarks(256, 256) == pytest.approx(np.array(TEMPLATE) * 2 + np.array([16, 0]))


@pytest.mark.parametrize("size", [(112, 96), (128, 128), (128, 112), (256, 224), (250, 250)])
def test_default_landmarks_are_where_alignment_puts_them(size: tuple[int, int]) -> None:
    assert default_landmarks(*size) == pytest.approx(TEMPLATES.get("arcface").points(size))


def test_similarity_recovers_turn_scale_and_shift() -> None:
    turn = 1.5 * np.exp(0.3j)
    moved = np.array(TEMPLATE) @ (1, 1j) * turn + (7 - 4j)
    matrix = similarity(np.stack([moved.real, moved.imag], axis=-1))
    assert matrix[:, 0] == pytest.approx([turn.real, turn.imag])
    assert matrix[:, 2] == pytest.approx([7, -4])


def test_mask_covers_the_mouth_then_the_nose_never_the_eyes() -> None:
    low, high = changed("medical_mask", 1), changed("medical_mask", 5)
    for mask in (low, high):
        assert at(mask, LEFT_MOUTH) and at(mask, RIGHT_MOUTH)
        assert not at(mask, LEFT_EYE) and not at(mask, RIGHT_EYE)
    assert at(high, NOSE) and not at(low, NOSE)


def test_sunglasses_cover_the_eyes_only() -> None:
    for severity in (1, 5):
        mask = changed("sunglasses", severity)
        assert at(mask, LEFT_EYE) and at(mask, RIGHT_EYE)
        assert not at(mask, LEFT_MOUTH) and not at(mask, NOSE)


def test_cap_stays_above_the_eyes_but_shades_them() -> None:
    assert not at(changed("cap", 1), LEFT_EYE)
    images = np.full((1, 112, 112), 128, dtype=np.uint8)
    out = corrupt(images, "cap", 5, ids=["x"])[0]
    assert 0 < out[52, 38] < 128 and not changed("cap", 5)[70:].any()


def test_wearables_move_with_the_landmarks() -> None:
    moved = (np.array(TEMPLATE) + np.array([5, -10]))[None]
    here, there = changed("sunglasses", 3), changed("sunglasses", 3, landmarks=moved)
    assert (np.roll(here, (-10, 5), axis=(0, 1))[20:80, 20:90] == there[20:80, 20:90]).mean() > 0.99


def test_wrong_landmarks_are_refused() -> None:
    images = np.zeros((2, 112, 112, 3), dtype=np.uint8)
    for bad in (np.zeros((1, 5, 2)), np.full((2, 5, 2), np.nan)):
        with pytest.raises(DataError, match="landmarks"):
            corrupt(images, "cap", 1, ids=["a", "b"], landmarks=bad)
