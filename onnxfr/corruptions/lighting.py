"""Light and colour: brightness, contrast, saturate (ImageNet-C), colour shift (OODFace).

Brightness and saturation are stated in HSV; with the hue untouched both reduce to one factor per
pixel that depends on its largest and smallest value alone, hence tables and no conversion.
"""

from __future__ import annotations

from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray

from onnxfr.corruptions._pixels import each, to_uint8
from onnxfr.corruptions.base import OODFACE, Floats, Frames, Scene, corruption, shared

_ROUNDING_GUARD = 1e-3


@corruption("brightness", category="lighting_weather", presets=shared((0.1, 0.2, 0.3, 0.4, 0.5)))
def brightness(frames: Frames, scene: Scene, gain: float) -> Frames:
    """Add ``gain`` to V in HSV; it only ever brightens."""
    index = (_largest(frames).astype(np.uint16)[..., None] << np.uint16(8)) | frames
    return np.take(_brightness_table(gain), index)


@lru_cache(maxsize=16)
def _brightness_table(gain: float) -> NDArray[np.uint8]:
    """Return the new value for every ``largest value << 8 | value``."""
    largest, value = np.arange(256.0)[:, None], np.arange(256.0)[None, :]
    lifted = np.minimum(largest + 255 * gain, 255)
    table = np.minimum(value * lifted / np.maximum(largest, 1), 255)
    table[0] = lifted[0]
    return np.asarray(np.trunc(table + _ROUNDING_GUARD), dtype=np.uint8).ravel()


@corruption(
    "saturate",
    category="lighting_weather",
    presets=shared(((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2))),
    monotone=False,
)
def saturate(frames: Frames, scene: Scene, factor: float, offset: float) -> Frames:
    """Scale S in HSV: levels 1 and 2 take colour away, 3 to 5 exaggerate it."""
    if frames.shape[3] == 1:
        return frames.copy()
    largest, smallest = _largest(frames), _smallest(frames)
    ratio = np.take(
        _saturation_table(factor, offset), largest.astype(np.uint16) << np.uint16(8) | smallest
    )
    top = largest[..., None]
    values = np.multiply(top - frames, ratio[..., None], dtype=np.float32)
    np.subtract(top + np.float32(_ROUNDING_GUARD), values, out=values)
    if offset:
        # A grey pixel has hue 0 by convention: an offset tints it red.
        grey = largest == smallest
        values[grey, 1:] *= np.float32(1 - offset)
    return to_uint8(values)


@lru_cache(maxsize=16)
def _saturation_table(factor: float, offset: float) -> Floats:
    """Return new S over old S for every ``largest << 8 | smallest``."""
    largest, smallest = np.arange(256.0)[:, None], np.arange(256.0)[None, :]
    old = np.maximum(largest - smallest, 0) / np.maximum(largest, 1)
    new = np.clip(old * factor + offset, 0, 1)
    return np.where(old > 0, new / np.maximum(old, 1e-9), 0).astype(np.float32).ravel()


@corruption("contrast", category="lighting_weather", presets=shared((0.4, 0.3, 0.2, 0.1, 0.05)))
def contrast(frames: Frames, scene: Scene, factor: float) -> Frames:
    """Pull every value towards the mean of its channel."""
    ramp = np.arange(256.0) * factor

    def flatten(_: int, frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
        means = np.array(cv2.mean(frame)[: frames.shape[3]])
        table = np.trunc(ramp[:, None] + means * (1 - factor) + _ROUNDING_GUARD).astype(np.uint8)
        return np.asarray(cv2.LUT(frame, table[None]))

    return each(frames, flatten)


@corruption(
    "color_shift",
    category="sensor",
    paper=OODFACE,
    presets={"oodface-code": (36, 72, 108, 144, 180), "oodface-paper": (0, 7, 14, 21, 28)},
    monotone=False,
)
def color_shift(frames: Frames, scene: Scene, reach: int) -> Frames:
    """Turn the hue by an integer from -reach to reach, of 180; a grey picture has none to turn."""
    if frames.shape[3] == 1:
        return frames.copy()
    shifts = [int(stream.integers(-reach, reach + 1)) for stream in scene.rng.streams]

    def turn(i: int, frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
        hsv = cv2.cvtColor(frame, cv2.COLOR_RGB2HSV)
        wheel = ((np.arange(256) + shifts[i]) % 180).astype(np.uint8)
        hsv[..., 0] = np.take(wheel, np.asarray(hsv[..., 0], dtype=np.uint8))
        return np.asarray(cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB))

    return each(frames, turn)


def _largest(frames: Frames) -> NDArray[np.uint8]:
    if frames.shape[3] == 1:
        return frames[..., 0]
    return np.maximum(np.maximum(frames[..., 0], frames[..., 1]), frames[..., 2])


def _smallest(frames: Frames) -> NDArray[np.uint8]:
    return np.minimum(np.minimum(frames[..., 0], frames[..., 1]), frames[..., 2])
