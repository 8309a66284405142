"""Distances by hand, SSIM against a window-by-window loop."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from onnxfr.errors import MetricError
from onnxfr.metrics.perceptual import distortion, ssim


def looped_ssim(x: np.ndarray, y: np.ndarray) -> float:
    grid = np.exp(-(np.arange(-5, 6) ** 2) / (2 * 1.5**2))
    window = np.outer(grid, grid) / grid.sum() ** 2
    values = []
    for channel in range(x.shape[0]):
        for i in range(x.shape[1] - 10):
            for j in range(x.shape[2] - 10):
                a, b = x[channel, i : i + 11, j : j + 11], y[channel, i : i + 11, j : j + 11]
                ma, mb = (window * a).sum(), (window * b).sum()
                va, vb = (window * (a - ma) ** 2).sum(), (window * (b - mb) ** 2).sum()
                cov = (window * (a - ma) * (b - mb)).sum()
                top = (2 * ma * mb + 1e-4) * (2 * cov + 9e-4)
                values.append(top / ((ma**2 + mb**2 + 1e-4) * (va + vb + 9e-4)))
    return float(np.mean(values))


def test_distances_by_hand() -> None:
    clean = np.full((2, 3, 16, 16), 0.5, dtype=np.float32)
    changed = clean.copy()
    changed[0, :, :, :8] += 0.25
    found = distortion(clean, changed)
    assert found.linf.tolist() == [0.25, 0.0]
    assert found.l2[0] == pytest.approx(0.25 * math.sqrt(3 * 128))
    assert found.l2n[0] == pytest.approx(0.25 / math.sqrt(2))
    np.testing.assert_array_equal(found.rmse, found.l2n)
    assert found.psnr[0] == pytest.approx(20 * math.log10(255 / (255 * 0.25 / math.sqrt(2))))
    assert found.psnr[1] == math.inf
    assert found.area.tolist() == [0.5, 0.0]
    assert found.ssim[1] == pytest.approx(1.0) and found.ssim[0] < 1


def test_ssim_is_the_loop_over_windows() -> None:
    rng = np.random.default_rng(0)
    x = rng.random((2, 3, 20, 17))
    y = np.clip(x + rng.normal(0, 0.1, x.shape), 0, 1)
    expected = [looped_ssim(a, b) for a, b in zip(x, y, strict=True)]
    np.testing.assert_allclose(ssim(x, y), expected, rtol=1e-9)


def test_every_measure_worsens_with_noise_and_ignores_the_batch() -> None:
    rng = np.random.default_rng(1)
    clean = rng.random((40, 3, 32, 32)).astype(np.float32)
    noise = rng.normal(0, 1, clean.shape).astype(np.float32)
    steps = [distortion(clean, np.clip(clean + s * noise, 0, 1)) for s in (0.01, 0.05, 0.2)]
    for weaker, stronger in pairwise(steps):
        assert (weaker.l2n < stronger.l2n).all() and (weaker.psnr > stronger.psnr).all()
        assert (weaker.ssim > stronger.ssim).all()
    alone = distortion(clean[35:36], np.clip(clean[35:36] + 0.05 * noise[35:36], 0, 1))
    np.testing.assert_allclose(alone.ssim, steps[1].ssim[35:36])


def test_an_empty_batch_has_no_values() -> None:
    empty = np.zeros((0, 3, 16, 16), dtype=np.float32)
    assert all(part.size == 0 for part in vars(distortion(empty, empty)).values())


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        (np.zeros((1, 3, 16, 16)), np.zeros((1, 3, 16, 15)), "alike"),
        (np.zeros((3, 16, 16)), np.zeros((3, 16, 16)), "alike"),
        (np.zeros((1, 3, 16, 16), np.uint8), np.zeros((1, 3, 16, 16), np.uint8), "floating"),
        (np.full((1, 3, 16, 16), 255.0), np.zeros((1, 3, 16, 16)), r"\[0, 1\]"),
        (np.full((1, 3, 16, 16), np.nan), np.zeros((1, 3, 16, 16)), "NaN"),
        (np.zeros((1, 3, 8, 16)), np.zeros((1, 3, 8, 16)), "11 x 11"),
    ],
)
def test_bad_images_are_refused(a: np.ndarray, b: np.ndarray, words: str) -> None:
    with pytest.raises(MetricError, match=words):
        distortion(a, b)
