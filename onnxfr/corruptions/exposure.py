"""Beyond the papers: what a camera does in bad light: low light, wrong gamma, wrong white balance.

Low light follows the usual sensor model (Foi et al., 2008): in linear light the picture loses
exposure, and its noise has a part that grows with the signal and a part that does not.
"""

from __future__ import annotations

import numpy as np

from onnxfr.corruptions._pixels import to_uint8
from onnxfr.corruptions.base import Frames, Scene, corruption, own

_DISPLAY_GAMMA = 2.2
_FOI = "Foi et al., Poissonian-Gaussian noise modeling, IEEE TIP 2008"
_OWN = "onnxfr"


@corruption(
    "low_light",
    category="lighting_weather",
    paper=_FOI,
    presets=own(((0.5, 400), (0.3, 250), (0.18, 160), (0.1, 100), (0.05, 60))),
    extended=True,
)
def low_light(frames: Frames, scene: Scene, exposure: float, photons: float) -> Frames:
    """Expose less and add the noise of so few ``photons`` at full white, plus that of reading."""
    reading = 0.25 / photons
    table = (np.arange(256) / 255) ** _DISPLAY_GAMMA * exposure
    spread = np.sqrt(table / photons + reading**2).astype(np.float32)
    light = scene.rng.normal(frames.shape[1:])
    light *= np.take(spread, frames)
    light += np.take(table.astype(np.float32), frames)
    np.clip(light, 0, 1, out=light)
    light **= np.float32(1 / _DISPLAY_GAMMA)
    light *= 255
    light += np.float32(0.5)
    return to_uint8(light)


@corruption(
    "gamma",
    category="lighting_weather",
    paper=_OWN,
    presets=own((1.4, 1.8, 2.3, 3.0, 4.0)),
    extended=True,
)
def gamma(frames: Frames, scene: Scene, exponent: float) -> Frames:
    """Raise every value to a power, as a wrongly calibrated display chain does."""
    table = np.rint((np.arange(256) / 255) ** exponent * 255).astype(np.uint8)
    return np.take(table, frames)


@corruption(
    "white_balance",
    category="sensor",
    paper=_OWN,
    presets=own((0.1, 0.2, 0.3, 0.42, 0.55)),
    extended=True,
)
def white_balance(frames: Frames, scene: Scene, strength: float) -> Frames:
    """Tint towards warm or cold light, drawn per picture; a grey picture stays as it is."""
    if frames.shape[3] == 1:
        return frames.copy()
    warm = np.array([stream.integers(0, 2) * 2 - 1 for stream in scene.rng.streams])
    gains = np.stack([1 + strength * warm, np.ones(len(warm)), 1 - strength * warm], axis=-1)
    values = frames.astype(np.float32)
    values *= gains[:, None, None, :]
    values += np.float32(0.5)
    return to_uint8(values)
