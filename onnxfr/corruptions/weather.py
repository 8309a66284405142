"""Weather: fog, snow and a frosted pane (ImageNet-C).

Frost blends in our own procedural crystals where the original blends in photographs it cannot
license on; ``frost_photographs`` puts any pictures in their place.
"""

from __future__ import annotations

import math

import cv2
import numpy as np
from numpy.typing import NDArray

from onnxfr.corruptions._frost import procedural_frost
from onnxfr.corruptions._pixels import (
    FLOOR,
    each,
    luma,
    smear,
    stretch,
    to_uint8,
    zoom_positions,
)
from onnxfr.corruptions.base import Floats, Frames, Scene, corruption, shared
from onnxfr.errors import DataError


@corruption(
    "fog",
    category="lighting_weather",
    presets=shared(((1.5, 2), (2.0, 2), (2.5, 1.7), (2.5, 1.5), (3.0, 1.4))),
    monotone=False,
)
def fog(frames: Frames, scene: Scene, strength: float, decay: float) -> Frames:
    """Add a cloud of diamond-square plasma and scale back to the picture's own range."""
    height, width = frames.shape[1:3]
    side = 1 << (max(height, width) - 1).bit_length()
    draws = np.stack([s.random(side * side - 1, dtype=np.float32) for s in scene.rng.streams])
    cloud = plasma(draws, side, decay)[:, :height, :width, None]
    brightest = frames.reshape(len(frames), -1).max(axis=1).astype(np.float32)
    scale = (brightest / (brightest + np.float32(255 * strength)))[:, None, None, None]
    values = frames * scale
    values += cloud * (scale * np.float32(255 * strength))
    return to_uint8(values)


def plasma(draws: Floats, side: int, decay: float) -> Floats:
    """Grow ``(N, side, side)`` diamond-square maps in 0..1 from ``side² - 1`` draws each."""
    clouds = np.zeros((len(draws), side, side), dtype=np.float32)
    used, step, wobble = 0, side, 100.0

    def wobbled(total: Floats) -> Floats:
        nonlocal used
        count = total[0].size
        noise = draws[:, used : used + count].reshape(total.shape)
        used += count
        # The published generator multiplies the wobble twice: it decays with its square.
        reach = np.float32(wobble * wobble)
        return total * np.float32(0.25) + (noise * (2 * reach) - reach)

    while step >= 2:
        half = step // 2
        corners = clouds[:, ::step, ::step]
        edges = corners + np.roll(corners, -1, axis=1)
        clouds[:, half::step, half::step] = wobbled(edges + np.roll(edges, -1, axis=2))
        centres = clouds[:, half::step, half::step]
        beside = centres + np.roll(centres, 1, axis=1) + corners + np.roll(corners, -1, axis=2)
        clouds[:, ::step, half::step] = wobbled(beside)
        above = centres + np.roll(centres, 1, axis=2) + corners + np.roll(corners, -1, axis=1)
        clouds[:, half::step, ::step] = wobbled(above)
        step, wobble = half, wobble / decay
    clouds -= clouds.min(axis=(1, 2), keepdims=True)
    clouds /= clouds.max(axis=(1, 2), keepdims=True)
    return clouds


@corruption(
    "snow",
    category="lighting_weather",
    presets=shared(
        (
            (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
            (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
            (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
            (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
            (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
        )
    ),
    monotone=False,
)
def snow(
    frames: Frames,
    scene: Scene,
    mean: float,
    sd: float,
    zoom: float,
    threshold: float,
    radius: int,
    blur_sd: float,
    mix: float,
) -> Frames:
    """Whiten the picture and let streaks of snow fall over it, once more turned upside down."""
    height, width = frames.shape[1:3]
    _, tall, rows = zoom_positions(height, zoom)
    _, wide, columns = zoom_positions(width, zoom)
    flakes = scene.rng.normal((tall, wide))
    flakes *= np.float32(sd)
    flakes += np.float32(mean)
    flakes = stretch(flakes, rows, columns)
    flakes[flakes < threshold] = 0
    np.minimum(flakes, 1, out=flakes)
    angles = [stream.uniform(-135, -45) for stream in scene.rng.streams]

    def cover(i: int, frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
        streaks = smear(flakes[i], radius, blur_sd, angles[i])[:height, :width]
        streaks = np.rint(streaks * 255)
        streaks = streaks + streaks[::-1, ::-1]
        values = frame.astype(np.float32)
        pale = luma_float(values) * np.float32(1.5) + np.float32(127.5)
        if frame.ndim == 3:
            pale, streaks = pale[..., None], streaks[..., None]
        out = np.maximum(values, pale)
        out *= np.float32(1 - mix)
        values *= np.float32(mix)
        out += values
        out += streaks
        return to_uint8(out)

    return each(frames, cover)


def luma_float(values: Floats) -> Floats:
    """Return the grey values of a float picture without rounding them."""
    if values.ndim == 2:
        return values
    return np.asarray(cv2.cvtColor(values, cv2.COLOR_RGB2GRAY))


@corruption(
    "frost",
    category="occlusion",
    presets=shared(((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75))),
    monotone=False,
)
def frost(frames: Frames, scene: Scene, keep: float, weight: float) -> Frames:
    """Look through a frosted pane: keep * picture + weight * a random piece of frost."""
    height, width = frames.shape[1:3]
    panes = [check_photograph(pane) for pane in scene.frost_photographs or procedural_frost()]

    def cover(i: int, frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
        stream = scene.rng.streams[i]
        pane = panes[int(stream.integers(len(panes)))]
        piece = random_piece(pane, height, width, stream)
        if frame.ndim == 2:
            piece = luma(piece)
        return np.asarray(cv2.addWeighted(frame, keep, piece, weight, FLOOR))

    return each(frames, cover)


def random_piece(
    pane: NDArray[np.uint8], height: int, width: int, stream: np.random.Generator
) -> NDArray[np.uint8]:
    """Return a random crop of the pane, enlarged to at least 1.1 times the frame."""
    tall, wide = pane.shape[:2]
    factor = 1.1 * max(1.0, height / tall, width / wide)
    top = int(stream.integers(0, math.ceil(tall * factor) - height))
    left = int(stream.integers(0, math.ceil(wide * factor) - width))
    # Only the crop is sampled; pixel centres map as in a resize of the whole pane.
    sampling = np.array(
        [
            [1 / factor, 0, (left + 0.5) / factor - 0.5],
            [0, 1 / factor, (top + 0.5) / factor - 0.5],
        ]
    )
    flags = cv2.INTER_CUBIC | cv2.WARP_INVERSE_MAP
    piece = cv2.warpAffine(
        pane, sampling, (width, height), flags=flags, borderMode=cv2.BORDER_REPLICATE
    )
    return np.asarray(piece)


def check_photograph(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a frost photograph or raise unless it is an RGB picture."""
    if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
        raise DataError(
            "a frost photograph is an (H, W, 3) uint8 RGB array; "
            f"got {picture.dtype} of shape {picture.shape}"
        )
    return picture
