"""Small pixel helpers that several corruptions share."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray

from onnxfr.corruptions.base import Floats, Frames
from onnxfr.rng import RowRng

FLOOR = -0.5
"""Added before OpenCV rounds, so that it truncates as the published code does."""

_NEGLIGIBLE = 1e-6


def to_uint8(values: Floats) -> Frames:
    """Clip to 0..255 in place and truncate, as the published code does."""
    np.clip(values, 0, 255, out=values)
    return values.astype(np.uint8)


def each(frames: Frames, function: Callable[[int, NDArray[np.uint8]], NDArray[np.uint8]]) -> Frames:
    """Apply an OpenCV-style function to every frame; a grey frame reaches it as ``(H, W)``."""
    out = np.empty_like(frames)
    shape = frames.shape[1:]
    for i, frame in enumerate(frames):
        flat = frame[..., 0] if shape[2] == 1 else frame
        out[i] = function(i, flat).reshape(shape)
    return out


def luma(frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the ``(H, W)`` grey values of a grey or RGB frame."""
    return frame if frame.ndim == 2 else np.asarray(cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY))


def words(rng: RowRng, shape: tuple[int, ...]) -> NDArray[np.uint32]:
    """Return 32 random bits per value, ``(rows, *shape)``."""
    return np.stack([s.integers(0, 2**32, shape, dtype=np.uint32) for s in rng.streams])


def gaussian_blur(
    plane: Floats, sigma: tuple[float, float], truncate: float, border: int
) -> Floats:
    """Blur ``(H, W[, C])`` with a Gaussian cut at ``truncate`` deviations; sigma is (y, x)."""
    size_y, size_x = (2 * int(truncate * s + 0.5) + 1 for s in sigma)
    blurred = cv2.GaussianBlur(
        plane, (size_x, size_y), sigma[1], sigmaY=sigma[0], borderType=border
    )
    return np.asarray(blurred, dtype=np.float32)


def smear(plane: Floats, radius: int, sd: float, angle: float) -> Floats:
    """Motion-blur ``(H, W[, C])`` along ``angle`` degrees with one-sided Gaussian weights."""
    height, width = plane.shape[:2]
    taps = np.arange(2 * radius + 1)
    weights = np.exp(-(taps**2) / (2.0 * sd * sd))
    weights /= weights.sum()
    sine, cosine = math.sin(math.radians(angle)), math.cos(math.radians(angle))
    reach = 2 * radius + 1
    padded = cv2.copyMakeBorder(plane, reach, reach, reach, reach, cv2.BORDER_REPLICATE)
    out = np.zeros_like(plane)
    for tap, weight in zip(taps.tolist(), weights.tolist(), strict=True):
        dy, dx = math.ceil(tap * sine - 0.5), math.ceil(tap * cosine - 0.5)
        if weight < _NEGLIGIBLE or abs(dy) >= height or abs(dx) >= width:
            break
        top, left = reach + dy, reach + dx
        cv2.scaleAdd(padded[top : top + height, left : left + width], weight, out, out)
    return out


@lru_cache(maxsize=64)
def zoom_positions(side: int, factor: float) -> tuple[int, int, Floats]:
    """Return the start, length and output positions of a centre crop zoomed by ``factor``.

    Corner pixels of crop and result coincide; the result has ``round(length * factor)`` pixels.
    """
    length = math.ceil(side / factor)
    count = round(length * factor)
    positions = np.arange(count, dtype=np.float64) * ((length - 1) / max(count - 1, 1))
    return (side - length) // 2, length, positions.astype(np.float32)


def stretch(planes: Floats, rows: Floats, columns: Floats) -> Floats:
    """Sample ``(N, H, W)`` bilinearly at a grid of row and column positions."""
    planes = _interpolate(planes, rows, 1)
    return _interpolate(planes, columns, 2)


def _interpolate(planes: Floats, positions: Floats, axis: int) -> Floats:
    low = np.minimum(positions.astype(np.intp), max(planes.shape[axis] - 2, 0))
    shape = (1, -1, 1) if axis == 1 else (1, 1, -1)
    share = (positions - low).reshape(shape).astype(np.float32)
    below = np.take(planes, low, axis)
    above = np.take(planes, low + 1, axis)
    above -= below
    above *= share
    above += below
    return above
