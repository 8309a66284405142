"""Blur: out of focus, moving camera, zooming camera (ImageNet-C)."""

from __future__ import annotations

from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray

from onnxfr.corruptions._pixels import FLOOR, each, smear, to_uint8, zoom_positions
from onnxfr.corruptions.base import Floats, Frames, Scene, corruption, shared


@corruption(
    "defocus_blur",
    category="sensor",
    presets=shared(((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5))),
)
def defocus_blur(frames: Frames, scene: Scene, radius: int, alias_sd: float) -> Frames:
    """Spread every pixel over a disk of ``radius``, its rim softened by ``alias_sd``."""
    kernel = disk(radius, alias_sd)
    return each(frames, lambda _, frame: np.asarray(cv2.filter2D(frame, -1, kernel, delta=FLOOR)))


@lru_cache(maxsize=16)
def disk(radius: int, alias_sd: float) -> Floats:
    """Return the normalised disk, trimmed to where it is not zero."""
    reach, soft = (8, 3) if radius <= 8 else (radius, 5)
    squares = np.arange(-reach, reach + 1) ** 2
    kernel = (np.add.outer(squares, squares) <= radius * radius).astype(np.float32)
    kernel = cv2.GaussianBlur(kernel / kernel.sum(), (soft, soft), alias_sd)
    empty = 0
    while not kernel[empty].any():
        empty += 1
    return np.ascontiguousarray(kernel[empty : len(kernel) - empty, empty : len(kernel) - empty])


@corruption(
    "motion_blur",
    category="movement",
    presets=shared(((10, 3), (15, 5), (15, 8), (15, 12), (20, 15))),
)
def motion_blur(frames: Frames, scene: Scene, radius: int, sd: float) -> Frames:
    """Smear along a direction drawn from U(-45, 45) degrees."""
    angles = [stream.uniform(-45, 45) for stream in scene.rng.streams]
    return each(
        frames, lambda i, frame: to_uint8(smear(frame.astype(np.float32), radius, sd, angles[i]))
    )


@corruption(
    "zoom_blur",
    category="movement",
    presets=shared(((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03))),
)
def zoom_blur(frames: Frames, scene: Scene, stop: float, step: float) -> Frames:
    """Average the picture with its centre zoomed by 1, 1 + step, ... below ``stop``."""
    maps = zoom_maps(frames.shape[1], frames.shape[2], stop, step)

    def blur(_: int, frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
        # The unzoomed picture enters twice: as itself and as the first zoomed copy.
        total = frame.astype(np.float32) * 2
        for whole, part in maps:
            cv2.accumulate(cv2.remap(frame, whole, part, cv2.INTER_LINEAR), total)
        return to_uint8(total / np.float32(len(maps) + 2))

    return each(frames, blur)


@lru_cache(maxsize=16)
def zoom_maps(
    height: int, width: int, stop: float, step: float
) -> tuple[tuple[NDArray[np.int16], NDArray[np.uint16]], ...]:
    """Return OpenCV's fixed-point sampling maps for every factor above 1."""
    maps = []
    for factor in np.arange(1, stop, step).tolist()[1:]:
        top, _, rows = zoom_positions(height, factor)
        left, _, columns = zoom_positions(width, factor)
        # The published code crops the slightly larger result at its top left corner.
        grid = np.meshgrid(columns[:width] + left, rows[:height] + top)
        whole, part = cv2.convertMaps(grid[0], grid[1], cv2.CV_16SC2)
        maps.append((np.asarray(whole, dtype=np.int16), np.asarray(part, dtype=np.uint16)))
    return tuple(maps)
