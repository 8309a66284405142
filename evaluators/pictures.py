"""Pictures in records: small JPEGs that a report shows, and PNGs that keep every grey level."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from onnxfr.types import Pixels

SIDE = 112
_QUALITY = 88


def to_pixels(image: NDArray[np.float32]) -> Pixels:
    """Return one ``(3, H, W)`` picture in [0, 1] as an 8-bit file holds it."""
    return np.clip(np.round(image.transpose(1, 2, 0) * 255), 0, 255).astype(np.uint8)


def thumbnail(pixels: Pixels, side: int = SIDE) -> bytes:
    """Return a JPEG whose longer side is at most ``side``."""
    scale = side / max(pixels.shape[:2])
    if scale < 1:
        size = (max(1, round(pixels.shape[1] * scale)), max(1, round(pixels.shape[0] * scale)))
        pixels = np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)
    return _encode(pixels, ".jpg", [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])


def png(pixels: Pixels) -> bytes:
    """Return a PNG, which keeps the pixels as they are."""
    return _encode(pixels, ".png", [cv2.IMWRITE_PNG_COMPRESSION, 9])


def _encode(pixels: Pixels, suffix: str, options: list[int]) -> bytes:
    return bytes(cv2.imencode(suffix, np.ascontiguousarray(pixels[:, :, ::-1]), options)[1])
