"""Compression and resolution loss: JPEG and pixelation (ImageNet-C)."""

from __future__ import annotations

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
    height, width, channels = frames.shape[1:]
    tall, wide = int(height * scale), int(width * scale)
    rows = _average_rows(frames.reshape(len(frames), height, -1), tall)
    # One call narrows the rows of all frames; Pillow would do this before the rows are averaged,
    # which costs more and moves a value by one grey level at most.
    rows = rows.reshape((-1, width) if channels == 1 else (-1, width, channels))
    narrow = Image.fromarray(rows).resize((wide, len(rows)), Image.Resampling.BOX)
    blocks = np.asarray(narrow).reshape(len(frames), tall, wide, channels)
    out = np.empty_like(frames)
    for i, block in enumerate(blocks):
        enlarged = cv2.resize(block, (width, height), interpolation=cv2.INTER_NEAREST_EXACT)
        out[i] = enlarged.reshape(out.shape[1:])
    return out


def _average_rows(planes: NDArray[np.uint8], count: int) -> NDArray[np.uint8]:
    """Shrink axis 1 of ``(N, H, values)`` to ``count`` rows as Pillow's box filter does.

    Every row joins the one window whose centre is nearest; windows are averaged with equal weights.
    """
    height = planes.shape[1]
    starts = np.trunc(np.arange(count) * (height / count) + 0.5).astype(np.intp)
    sizes = np.diff(starts, append=height)[None, :, None]
    sums = planes[:, starts].astype(np.uint16)
    for ahead in range(1, int(sizes.max())):
        following = planes[:, np.minimum(starts + ahead, height - 1)]
        sums += following * (sizes > ahead).astype(np.uint8)
    means = np.multiply(sums, 1 / sizes, dtype=np.float32)
    means += np.float32(0.5)
    return np.asarray(means, dtype=np.uint8)
