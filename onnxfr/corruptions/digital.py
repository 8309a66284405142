"""Compression and resolution loss: JPEG and pixelation (ImageNet-C)."""

from __future__ import annotations

from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from onnxfr.corruptions._pixels import each
from onnxfr.corruptions.base import Frames, Scene, corruption, shared
from onnxfr.errors import MissingCodec

Places = NDArray[np.intp]


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
    height, width = frames.shape[1:3]
    tall, wide = int(height * scale), int(width * scale)
    # Only whole rows are ever averaged and copied, the columns after a turn: that is what is fast.
    low = _average_rows(frames, tall)
    narrow = _average_rows(_turn(low), wide)
    broad = _turn(narrow[:, nearest_sources(wide, width)])
    return broad[:, nearest_sources(tall, height)]


def _turn(frames: Frames) -> Frames:
    """Exchange rows and columns."""
    count, height, width, channels = frames.shape
    out = np.empty((count, width, height, channels), dtype=np.uint8)
    for frame, turned in zip(frames, out, strict=True):
        cv2.transpose(frame, turned)
    return out


def _average_rows(frames: Frames, count: int) -> Frames:
    """Shrink the height as Pillow's box filter does: whole rows, equal weights, half rounds up."""
    out = np.empty((len(frames), count, *frames.shape[2:]), dtype=np.uint8)
    for size, places, starts in _windows(frames.shape[1], count):
        sums = frames[:, starts].astype(np.uint16)
        for ahead in range(1, size):
            sums += frames[:, starts + ahead]
        sums += np.uint16(size // 2)
        if size & (size - 1) == 0:
            sums >>= np.uint16(size.bit_length() - 1)
        else:
            sums = (sums * np.float32(1 / size) + np.float32(1e-3)).astype(np.uint16)
        out[:, places] = sums
    return out


@lru_cache(maxsize=64)
def _windows(height: int, count: int) -> tuple[tuple[int, Places, Places], ...]:
    """Return (size, places, starts) of the windows that share a size.

    Pillow is asked which rows it mixes: where a window ends exactly between two rows, its rounding
    decides.
    """
    units = Image.fromarray(np.eye(height, dtype=np.float32))
    members = np.asarray(units.resize((height, count), Image.Resampling.BOX)) > 0
    starts, sizes = members.argmax(axis=1), members.sum(axis=1)
    groups = [(int(size), np.flatnonzero(sizes == size)) for size in np.unique(sizes)]
    return tuple((size, places, starts[places]) for size, places in groups)


@lru_cache(maxsize=64)
def nearest_sources(small: int, large: int) -> Places:
    """Return the position that Pillow's nearest-neighbour enlargement takes, for every new one."""
    column = Image.fromarray(np.arange(small, dtype=np.int32)[:, None])
    enlarged = np.asarray(column.resize((1, large), Image.Resampling.NEAREST))
    return enlarged[:, 0].astype(np.intp)
