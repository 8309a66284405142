"""Beyond the papers: the resolution ladder of a face that is further and further away."""

from __future__ import annotations

from onnxfr.corruptions.base import Frames, Scene, corruption, own
from onnxfr.corruptions.chains import fit


@corruption(
    "resolution",
    category="sensor",
    paper="onnxfr",
    presets=own((1 / 2, 1 / 3, 1 / 4, 1 / 5, 1 / 7)),
    extended=True,
)
def resolution(frames: Frames, scene: Scene, scale: float) -> Frames:
    """Record with fewer pixels (a 112-pixel crop with 56, 37, 28, 22, 16) and enlarge smoothly."""
    height, width = frames.shape[1:3]
    return fit(fit(frames, round(height * scale), round(width * scale)), height, width)
