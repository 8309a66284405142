"""Compression and resolution loss: JPEG and pixelation (ImageNet-C)."""

from __future__ import annotations

import math
from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from onnxfr.corruptions._pixels import each
from onnxfr.corruptions.base import Frames, Scene, corruption, shared
from onnxfr.errors import MissingCodec


@corruption("jpeg", category="data_processing", presets=shared((25, 18, 15, 10, 7)))
def jpeg(frames: Frames, scene: Scene, quality: int) -> Frames:
    """Store as a JPEG of this quality and read back."""
    return each(frames, lambda _, frame: recode(frame, ".jpg", cv2.IMWRITE_JPEG_QUALITY, quality))


def recode(frame: NDArray[np.uint8], suffix: str, flag: int, quality: int) -> NDArray[np.uint8]:
    """Return a frame after a round trip through a lossy file format."""
    grey = frame.ndim == 2
    stored = frame if grey else cv2.cvtColor(frame, cv2.COLOR_RGB2BGR)
    done, data = cv2.imencode(suffix, stored, [flag, int(quality)])
    if not done:
        raise MissingCodec(
            f"OpenCV could not write a {suffix} picture; install a build that has it"
        )
    mode = cv2.IMREAD_GRAYSCALE if grey else cv2.IMREAD_COLOR_RGB
    return np.asarray(cv2.imdecode(data, mode))


@corruption("pixelate", category="sensor", presets=shared((0.6, 0.5, 0.4, 0.3, 0.25)))
def pixelate(frames: Frames, scene: Scene, scale: float) -> Frames:
    """Shrink with a box filter and enlarge with nearest neighbours."""
    count, height, width, channels = frames.shape
    tall, wide = int(height * scale), int(width * scale)
    period = tall // math.gcd(height, tall)
    # Shrunk as one tall picture where that is sure to give the same pixels: where a window ends
    # exactly between two rows, rounding could depend on a frame's place in the batch.
    together = count if period % 2 == 1 or period & (period - 1) == 0 else 1
    out = np.empty_like(frames)
    for start in range(0, count, together):
        part = frames[start : start + together].reshape(-1, width, channels)
        small = _box_shrink(part[..., 0] if channels == 1 else part, tall * together, wide)
        rows = _repeat_columns(small, width).reshape(together, tall, width, channels)
        out[start : start + together] = rows[:, nearest_sources(tall, height)]
    return out


def _box_shrink(rows: NDArray[np.uint8], tall: int, wide: int) -> NDArray[np.uint8]:
    """Average windows as Pillow's box filter does, which weighs whole pixels only."""
    if len(rows) % tall == 0 and rows.shape[1] % wide == 0:
        return np.asarray(
            cv2.resize(rows, (wide, tall), interpolation=cv2.INTER_AREA), dtype=np.uint8
        )
    # One axis at a time, or Pillow would choose their order by the size of the batch.
    narrow = Image.fromarray(rows).resize((wide, len(rows)), Image.Resampling.BOX)
    return np.asarray(narrow.resize((wide, tall), Image.Resampling.BOX))


def _repeat_columns(rows: NDArray[np.uint8], width: int) -> NDArray[np.uint8]:
    """Enlarge to ``width`` columns; OpenCV is faster, Pillow decides where the two differ."""
    wide = rows.shape[1]
    sources = nearest_sources(wide, width)
    if (sources == (2 * np.arange(width) + 1) * wide // (2 * width)).all():
        size = (width, len(rows))
        enlarged = cv2.resize(rows, size, interpolation=cv2.INTER_NEAREST_EXACT)
        return np.asarray(enlarged, dtype=np.uint8)
    return rows[:, sources]


@lru_cache(maxsize=64)
def nearest_sources(small: int, large: int) -> NDArray[np.int32]:
    """Return the position that Pillow's nearest-neighbour enlargement takes, for every new one."""
    column = Image.fromarray(np.arange(small, dtype=np.int32)[:, None])
    return np.asarray(column.resize((1, large), Image.Resampling.NEAREST))[:, 0]
