"""Fog, frost, snow, ellipses and spatter: what is special about each."""

from __future__ import annotations

import numpy as np
import pytest

from onnxfr.corruptions import SEVERITIES, corrupt
from onnxfr.corruptions._frost import procedural_frost
from onnxfr.corruptions.weather import plasma
from onnxfr.errors import DataError
from onnxfr.rng import stream

MANY = [str(i) for i in range(300)]


def test_plasma_fills_the_map_from_zero_to_one() -> None:
    draws = stream(0, "plasma").random((3, 64 * 64 - 1), dtype=np.float32)
    clouds = plasma(draws, 64, 2.0)
    assert clouds.shape == (3, 64, 64)
    assert clouds.min(axis=(1, 2)) == pytest.approx(0) and clouds.max(axis=(1, 2)) == pytest.approx(
        1
    )
    rough = plasma(draws, 64, 1.4)
    assert np.abs(np.diff(rough, axis=2)).mean() > 2 * np.abs(np.diff(clouds, axis=2)).mean()


def test_frost_panes_are_bright_crystals_and_always_the_same() -> None:
    panes = procedural_frost()
    means = [float(pane.mean()) for pane in panes]
    assert len(panes) == 6 and 140 < np.mean(means) < 165
    assert all(np.abs(np.diff(pane.astype(int), axis=1)).mean() > 6 for pane in panes)
    procedural_frost.cache_clear()
    assert all((a == b).all() for a, b in zip(panes, procedural_frost(), strict=True))


def test_a_piece_of_frost_has_the_contrast_of_a_piece_of_a_photograph() -> None:
    rng = np.random.default_rng(0)
    found = []
    for pane in procedural_frost():
        places = [(rng.integers(0, s - 112, 40)) for s in pane.shape[:2]]
        pieces = [pane[y : y + 112, x : x + 112].mean(axis=2) for y, x in zip(*places, strict=True)]
        found.append(float(np.mean([piece.std() for piece in pieces])))
    # The six photographs of imagecorruptions, measured the same way.
    np.testing.assert_allclose(found, [16.7, 17.1, 23.4, 13.2, 33.7, 34.0], rtol=0.12)


def test_frost_takes_photographs_of_the_user() -> None:
    images = np.zeros((1, 112, 112, 3), dtype=np.uint8)
    photograph = np.full((50, 90, 3), (200, 100, 40), dtype=np.uint8)
    out = corrupt(images, "frost", 3, ids=["x"], frost_photographs=[photograph])
    assert out.reshape(-1, 3).min(axis=0).tolist() == out.reshape(-1, 3).max(axis=0).tolist()
    assert out[0, 0, 0] == pytest.approx(0.7 * photograph[0, 0], abs=1)


def test_a_grey_frost_photograph_is_refused() -> None:
    images = np.zeros((1, 112, 112, 3), dtype=np.uint8)
    with pytest.raises(DataError, match="frost photograph"):
        corrupt(images, "frost", 3, ids=["x"], frost_photographs=[images[0, ..., 0]])


@pytest.mark.parametrize(
    ("side", "percents"),
    [(112, (11.6, 21.9, 31.3, 39.0, 46.1)), (250, (6.9, 13.5, 20.1, 25.7, 30.7))],
)
def test_ellipses_of_the_code_cover_the_published_share(
    side: int, percents: tuple[float, ...]
) -> None:
    images = np.full((300, side, side), 200, dtype=np.uint8)
    for severity, percent in zip(SEVERITIES, percents, strict=True):
        out = corrupt(images, "random_occlusion", severity, ids=MANY)
        assert set(np.unique(out)) == {1, 200}
        assert 100 * np.mean(out == 1) == pytest.approx(percent, rel=0.06)


def test_ellipses_of_the_paper_cover_what_they_should() -> None:
    images = np.full((30, 112, 96), 200, dtype=np.uint8)
    for severity in SEVERITIES:
        out = corrupt(images, "random_occlusion", severity, ids=MANY[:30], preset="oodface-paper")
        shares = (out == 1).reshape(30, -1).mean(axis=1)
        assert (shares >= 0.05 * severity).all() and (shares < 0.05 * severity + 0.015).all()


def test_water_brightens_and_mud_darkens() -> None:
    images = np.full((4, 112, 112, 3), 120, dtype=np.uint8)
    water = corrupt(images, "spatter", 3, ids=MANY[:4])
    mud = corrupt(images, "spatter", 5, ids=MANY[:4])
    assert (water >= 120).all() and (water > 120).mean() > 0.05
    assert (mud <= 120).all() and (mud < 120).mean() > 0.05


def test_snow_whitens_and_is_symmetric_on_a_plain_picture() -> None:
    images = np.full((1, 112, 112), 60, dtype=np.uint8)
    out = corrupt(images, "snow", 3, ids=["x"])[0]
    assert (out >= 60).all()
    assert (out == out[::-1, ::-1]).all()


@pytest.mark.parametrize("name", ["fog", "snow", "spatter", "frost", "random_occlusion"])
def test_large_pictures_work_too(name: str) -> None:
    images = np.full((1, 700, 1024, 3), 120, dtype=np.uint8)
    assert corrupt(images, name, 4, ids=["x"]).shape == images.shape
