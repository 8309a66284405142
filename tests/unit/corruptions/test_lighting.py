"""The table forms equal the HSV definitions; colour shift and exposure behave."""

from __future__ import annotations

import colorsys

import numpy as np
import pytest
from numpy.typing import NDArray

from onnxfr.corruptions import CORRUPTIONS, SEVERITIES, corrupt
from onnxfr.rng import stream


@pytest.fixture(scope="module")
def palette() -> NDArray[np.uint8]:
    """One picture of random colours, with black, white and grey among them."""
    picture = stream(0, "palette").integers(0, 256, (1, 64, 64, 3), dtype=np.uint8)
    picture[0, 0] = np.arange(64, dtype=np.uint8)[:, None] * 4
    picture[0, 1] = 255
    return picture


def by_hsv(picture: NDArray[np.uint8], change: tuple[float, float, float]) -> NDArray[np.float64]:
    """Change saturation by factor and offset and value by offset, one pixel at a time."""
    factor, offset, gain = change
    out = np.empty(picture.shape, dtype=np.float64)
    for index in np.ndindex(picture.shape[:-1]):
        hue, saturation, value = colorsys.rgb_to_hsv(*(picture[index] / 255.0))
        saturation = min(max(saturation * factor + offset, 0), 1)
        out[index] = colorsys.hsv_to_rgb(hue, saturation, min(value + gain, 1))
    return out * 255


@pytest.mark.parametrize("severity", SEVERITIES)
def test_brightness_equals_its_hsv_definition(palette: NDArray[np.uint8], severity: int) -> None:
    expected = by_hsv(palette, (1, 0, 0.1 * severity))
    out = corrupt(palette, "brightness", severity, ids=["x"])
    assert np.abs(out - expected).max() <= 1


@pytest.mark.parametrize("severity", SEVERITIES)
def test_saturate_equals_its_hsv_definition(palette: NDArray[np.uint8], severity: int) -> None:
    factor, offset = CORRUPTIONS.get("saturate").parameters(severity)
    expected = by_hsv(palette, (float(factor), float(offset), 0))
    out = corrupt(palette, "saturate", severity, ids=["x"])
    assert np.abs(out - expected).max() <= 1


def test_contrast_keeps_the_mean_and_scales_the_deviation(palette: NDArray[np.uint8]) -> None:
    out = corrupt(palette, "contrast", 2, ids=["x"]).astype(float)
    assert out.mean(axis=(1, 2)) == pytest.approx(palette.mean(axis=(1, 2)), abs=1)
    assert out.std(axis=(1, 2)) == pytest.approx(0.3 * palette.std(axis=(1, 2)), rel=0.02)


def test_color_shift_of_the_paper_does_nothing_at_level_one(palette: NDArray[np.uint8]) -> None:
    out = corrupt(palette, "color_shift", 1, ids=["x"], preset="oodface-paper")
    assert np.abs(out.astype(int) - palette).mean() < 2


def test_color_shift_keeps_value_and_stays_within_its_reach() -> None:
    red = np.zeros((200, 64, 64, 3), dtype=np.uint8)
    red[..., 0] = 200
    ids = [str(i) for i in range(200)]
    out = corrupt(red, "color_shift", 5, ids=ids, preset="oodface-paper")
    assert (out.max(axis=-1) == 200).all()
    hues = [colorsys.rgb_to_hsv(*(pixel / 255))[0] for pixel in out[:, 0, 0]]
    turned = np.array([(hue + 0.5) % 1 - 0.5 for hue in hues]) * 180
    assert 20 < np.abs(turned).max() <= 28.5 and turned.min() < 0 < turned.max()


def test_grey_pictures_have_no_colour_to_change() -> None:
    grey = stream(0, "grey").integers(0, 256, (1, 64, 64), dtype=np.uint8)
    for name in ("saturate", "color_shift", "white_balance"):
        assert (corrupt(grey, name, 3, ids=["x"]) == grey).all()


def test_low_light_darkens_and_adds_relatively_more_noise() -> None:
    plain = np.full((4, 112, 112, 3), 160, dtype=np.uint8)
    ids = list("abcd")
    outs = [corrupt(plain, "low_light", s, ids=ids).astype(float) for s in SEVERITIES]
    assert (np.diff([out.mean() for out in outs]) < 0).all()
    assert (np.diff([out.std() / out.mean() for out in outs]) > 0).all()
