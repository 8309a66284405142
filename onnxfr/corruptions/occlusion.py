"""In front of the face: random ellipses (OODFace), spattered water or mud (ImageNet-C)."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from onnxfr.corruptions._pixels import each, gaussian_blur, to_uint8
from onnxfr.corruptions.base import OODFACE, Floats, Frames, Scene, corruption, shared

_DARK = 1
_WATER = np.array([175, 238, 238], dtype=np.float32)
_MUD = np.array([63, 42, 20], dtype=np.float32)
_LUMA = np.array([0.2989, 0.5870, 0.1140], dtype=np.float32)

Ellipse = tuple[tuple[int, int], tuple[int, int], int]


@corruption(
    "random_occlusion",
    category="occlusion",
    paper=OODFACE,
    presets={
        "oodface-code": ((1, 0.0), (2, 0.0), (3, 0.0), (4, 0.0), (5, 0.0)),
        "oodface-paper": ((0, 0.05), (0, 0.10), (0, 0.15), (0, 0.20), (0, 0.25)),
    },
)
def random_occlusion(frames: Frames, scene: Scene, ellipses: int, coverage: float) -> Frames:
    """Put dark ellipses over the picture: a number of them, or until ``coverage`` is reached."""

    def hide(i: int, frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
        stream = scene.rng.streams[i]
        height, width = frame.shape[:2]
        covered = np.zeros((height, width), dtype=np.uint8)
        for _ in range(ellipses):
            _paint(covered, _random_ellipse(stream, height, width))
        while covered.mean() < coverage:
            covered = _add_up_to(covered, _random_ellipse(stream, height, width), coverage)
        out = frame.copy()
        out[covered > 0] = _DARK
        return out

    return each(frames, hide)


def _random_ellipse(stream: np.random.Generator, height: int, width: int) -> Ellipse:
    centre = (int(stream.integers(0, width + 1)), int(stream.integers(0, height + 1)))
    # Pictures below 80 pixels leave no room above the published smallest half-axis of 20.
    axes = [int(stream.integers(min(20, side // 4), side // 4 + 1)) for side in (width, height)]
    return centre, (axes[0], axes[1]), int(stream.integers(0, 181))


def _paint(covered: NDArray[np.uint8], ellipse: Ellipse) -> None:
    centre, axes, angle = ellipse
    cv2.ellipse(covered, centre, axes, angle, 0, 360, 1, -1)


def _add_up_to(covered: NDArray[np.uint8], ellipse: Ellipse, coverage: float) -> NDArray[np.uint8]:
    """Add an ellipse; one that would overshoot is shrunk to the size that just reaches the goal."""
    centre, axes, angle = ellipse
    best = covered.copy()
    _paint(best, ellipse)
    if best.mean() < coverage:
        return best
    low, high = 0, max(axes)
    while high - low > 1:
        size = (low + high) // 2
        trial = covered.copy()
        _paint(trial, (centre, (axes[0] * size // max(axes), axes[1] * size // max(axes)), angle))
        if trial.mean() < coverage:
            low = size
        else:
            high, best = size, trial
    return best


@corruption(
    "spatter",
    category="occlusion",
    presets=shared(
        (
            (0.65, 0.3, 4, 0.69, 0.6, False),
            (0.65, 0.3, 3, 0.68, 0.6, False),
            (0.65, 0.3, 2, 0.68, 0.5, False),
            (0.65, 0.3, 1, 0.65, 1.5, True),
            (0.67, 0.4, 1, 0.65, 1.5, True),
        )
    ),
)
def spatter(
    frames: Frames,
    scene: Scene,
    mean: float,
    sd: float,
    sigma: float,
    threshold: float,
    strength: float,
    mud: bool,
) -> Frames:
    """Spatter the lens with drops of water, or of mud at the two highest severities."""
    noise = scene.rng.normal(frames.shape[1:3])
    noise *= np.float32(sd)
    noise += np.float32(mean)
    colour = _MUD if mud else _WATER

    def splash(i: int, frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
        liquid = gaussian_blur(noise[i], (sigma, sigma), 4, cv2.BORDER_REPLICATE)
        layer = _mud(liquid, threshold, strength) if mud else _water(liquid, threshold, strength)
        if frame.ndim == 2:
            added = layer * np.float32(colour @ _LUMA)
        else:
            layer = layer[..., None]
            added = layer * colour
        return to_uint8(frame * (1 - layer) + added if mud else frame + added)

    return each(frames, splash)


def _water(liquid: Floats, threshold: float, strength: float) -> Floats:
    """Return the highlight of every pixel: bright along the rims of the drops."""
    drops = np.where(liquid < threshold, 0, liquid * 255).astype(np.uint8)
    rims = 255 - cv2.Canny(drops, 50, 150)
    depth = np.minimum(cv2.distanceTransform(rims, cv2.DIST_L2, 5), 20)
    depth = cv2.equalizeHist(cv2.blur(depth, (3, 3)).astype(np.uint8))
    relief = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]], dtype=np.float32)
    glow = cv2.blur(cv2.filter2D(depth, cv2.CV_8U, relief), (3, 3)).astype(np.float32)
    glow *= drops
    brightest = glow.max()
    if brightest > 0:
        glow *= np.float32(strength) / brightest
    return np.asarray(glow, dtype=np.float32)


def _mud(liquid: Floats, threshold: float, strength: float) -> Floats:
    """Return the opacity of every pixel: solid clumps without soft edges."""
    clumps = (liquid > threshold).astype(np.float32)
    clumps = gaussian_blur(clumps, (strength, strength), 4, cv2.BORDER_REPLICATE)
    clumps[clumps < 0.8] = 0
    return clumps
