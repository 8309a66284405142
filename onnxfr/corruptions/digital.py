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
    height, width = frames.shape[1:3]
    small = (int(width * scale), int(height * scale))

    def coarsen(_: int, frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
        blocks = np.asarray(Image.fromarray(frame).resize(small, Image.Resampling.BOX))
        enlarged = cv2.resize(blocks, (width, height), interpolation=cv2.INTER_NEAREST_EXACT)
        return np.asarray(enlarged)

    return each(frames, coarsen)
