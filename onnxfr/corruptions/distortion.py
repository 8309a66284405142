"""Facial distortion: a small elastic warp (ImageNet-C's elastic transform, named so by OODFace)."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from onnxfr.corruptions._pixels import each, gaussian_blur, to_uint8
from onnxfr.corruptions.base import Frames, Scene, corruption, shared


@corruption(
    "facial_distortion",
    category="movement",
    presets=shared((12.5, 16.25, 21.25, 25.0, 30.0)),
)
def facial_distortion(frames: Frames, scene: Scene, alpha: float) -> Frames:
    """Move pixels by a smoothed uniform field of half a per cent of the height, times alpha."""
    height, width = frames.shape[1:3]
    reach = np.float32(0.005 * height * alpha)
    columns, rows = np.meshgrid(
        np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32)
    )

    def warp(i: int, frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
        field = scene.rng.streams[i].random((height, width, 2), dtype=np.float32)
        field *= 2 * reach
        field -= reach
        field = gaussian_blur(field, (0.01 * height, 0.01 * width), 3, cv2.BORDER_REFLECT)
        warped = cv2.remap(
            frame.astype(np.float32),
            field[..., 0] + columns,
            field[..., 1] + rows,
            cv2.INTER_LINEAR,
            borderMode=cv2.BORDER_REFLECT,
        )
        return to_uint8(np.asarray(warped, dtype=np.float32))

    return each(frames, warp)
