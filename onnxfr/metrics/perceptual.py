"""How visible a change is: distances and structural similarity (Wang et al. 2004), per image.

Images are ``(N, C, H, W)`` in [0, 1]. SSIM uses the original's 11 x 11 Gaussian window (sd 1.5) on
each channel, averaged over the pixels where the window fits and over channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage

from onnxfr.errors import MetricError
from onnxfr.metrics._checks import Floats

_RADIUS = 5
_SIGMA = 1.5
_BLOCK = 32


@dataclass(frozen=True)
class Distortion:
    """One value per image; ``l2n`` is the RMSE, ``psnr`` infinite for identical images.

    ``area`` is the share of pixels changed at all.
    """

    linf: Floats
    l2: Floats
    l2n: Floats
    psnr: Floats
    ssim: Floats
    area: Floats

    @property
    def rmse(self) -> Floats:
        """Root mean squared error: the normalised l2 by its other name."""
        return self.l2n


def _images(clean: ArrayLike, changed: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    a, b = np.asarray(clean), np.asarray(changed)
    if a.ndim != 4 or a.shape != b.shape:
        raise MetricError(f"expected two (N, C, H, W) batches alike, got {a.shape} and {b.shape}")
    for array in (a, b):
        if array.dtype.kind != "f":
            raise MetricError(f"images must be floating point in [0, 1], got {array.dtype}")
        if array.size and not (array.min() >= -1e-6 and array.max() <= 1 + 1e-6):
            raise MetricError("images must lie in [0, 1], without NaN")
    return a, b


def _blur(images: Floats) -> Floats:
    offsets = np.arange(-_RADIUS, _RADIUS + 1)
    kernel = np.exp(-(offsets**2) / (2 * _SIGMA**2))
    kernel /= kernel.sum()
    rows = ndimage.correlate1d(images, kernel, axis=2)
    full = ndimage.correlate1d(rows, kernel, axis=3)
    return np.asarray(full[:, :, _RADIUS:-_RADIUS, _RADIUS:-_RADIUS], dtype=np.float64)


def ssim(clean: ArrayLike, changed: ArrayLike) -> Floats:
    """Return the mean structural similarity of each image; 1 is identical."""
    a, b = _images(clean, changed)
    if min(a.shape[2:]) < 2 * _RADIUS + 1:
        raise MetricError(f"SSIM needs images of at least 11 x 11 pixels, got {a.shape[2:]}")
    values = [np.zeros(0)]
    for start in range(0, a.shape[0], _BLOCK):
        x = a[start : start + _BLOCK].astype(np.float64)
        y = b[start : start + _BLOCK].astype(np.float64)
        mean_x, mean_y = _blur(x), _blur(y)
        var_x, var_y = _blur(x * x) - mean_x**2, _blur(y * y) - mean_y**2
        cov = _blur(x * y) - mean_x * mean_y
        c1, c2 = 0.01**2, 0.03**2
        score = (2 * mean_x * mean_y + c1) * (2 * cov + c2)
        score /= (mean_x**2 + mean_y**2 + c1) * (var_x + var_y + c2)
        values.append(score.mean(axis=(1, 2, 3)))
    return np.concatenate(values)


def distortion(clean: ArrayLike, changed: ArrayLike) -> Distortion:
    """Return every measure of change between two batches, in [0, 1] pixel units."""
    a, b = _images(clean, changed)
    difference = b.astype(np.float64) - a.astype(np.float64)
    flat = np.abs(difference).reshape(a.shape[0], a.shape[1] * a.shape[2] * a.shape[3])
    l2 = np.sqrt((flat**2).sum(axis=1))
    l2n = l2 / np.sqrt(max(1, flat.shape[1]))
    with np.errstate(divide="ignore"):
        psnr = -20 * np.log10(l2n)
    return Distortion(
        linf=flat.max(axis=1, initial=0.0),
        l2=l2,
        l2n=l2n,
        psnr=psnr,
        ssim=ssim(a, b),
        area=(difference != 0).any(axis=1).mean(axis=(1, 2)),
    )
