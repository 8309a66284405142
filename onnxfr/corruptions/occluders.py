"""Beyond the papers: things people wear: a medical mask, sunglasses, a cap, placed by landmarks.

Shapes are drawn in the coordinates of the aligned 112-pixel face and carried to every picture by
the similarity that maps the ArcFace template onto its five landmarks, so a tilted face wears a
tilted mask. Without landmarks a picture counts as aligned to that template.
"""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np
from numpy.typing import NDArray

from onnxfr.corruptions._pixels import each
from onnxfr.corruptions.base import Floats, Frames, Scene, corruption, own

_PAPER = "onnxfr"
_OVERSAMPLE = 4
_FRACTION_BITS = 4

TEMPLATE: tuple[tuple[float, float], ...] = (
    (38.2946, 51.6963),
    (73.5318, 51.5014),
    (56.0252, 71.7366),
    (41.5493, 92.3655),
    (70.7299, 92.2041),
)
"""Left eye, right eye, nose tip, left and right mouth corner on a 112-pixel crop."""

_MASK_COLOURS = ((118, 170, 205), (232, 236, 238), (38, 38, 42))
_CAP_COLOURS = ((32, 44, 92), (120, 24, 28), (30, 30, 32), (46, 86, 52))
_LENS = (18, 18, 22)


class Canvas:
    """A transparent layer in template coordinates, drawn larger for smooth edges."""

    def __init__(self, matrix: NDArray[np.float64], height: int, width: int) -> None:
        self.matrix = matrix
        self.size = (height, width)
        self.colour: Floats = np.zeros((height, width, 3), dtype=np.float32)
        self.alpha: Floats = np.zeros((height, width, 1), dtype=np.float32)

    def polygon(
        self, points: NDArray[np.float64], rgb: tuple[float, ...], opacity: float = 1.0
    ) -> None:
        """Lay one filled polygon over what is there."""
        height, width = self.size
        placed = points @ self.matrix[:, :2].T + self.matrix[:, 2]
        corners = np.rint((placed + 0.5) * _OVERSAMPLE * (1 << _FRACTION_BITS)).astype(np.int32)
        fine = np.zeros((height * _OVERSAMPLE, width * _OVERSAMPLE), dtype=np.uint8)
        cv2.fillPoly(fine, [corners], 255, cv2.LINE_AA, _FRACTION_BITS)
        cover = cv2.resize(fine, (width, height), interpolation=cv2.INTER_AREA)
        share = (cover.astype(np.float32) * np.float32(opacity / 255))[..., None]
        self.colour += share * (np.array(rgb, dtype=np.float32) - self.colour)
        self.alpha += share * (1 - self.alpha)

    def over(self, frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the frame with the layer on top."""
        colour = np.divide(self.colour, np.maximum(self.alpha, 1e-6), dtype=np.float32)
        alpha = self.alpha
        if frame.ndim == 2:
            colour = np.asarray(cv2.cvtColor(colour, cv2.COLOR_RGB2GRAY), dtype=np.float32)
            alpha = alpha[..., 0]
        return np.rint(frame + alpha * (colour - frame)).clip(0, 255).astype(np.uint8)


def default_landmarks(height: int, width: int) -> NDArray[np.float64]:
    """Return the template's five points on an aligned crop of this size."""
    points = np.array(TEMPLATE)
    if height == width and height % 128 == 0:
        points = (points + np.array([8.0, 0.0])) * (height / 128)
    else:
        points = points * (height / 112)
    return np.asarray(points + np.array([(width - height) / 2, 0.0]))


def similarity(landmarks: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the least-squares similarity ``(2, 3)`` from template to image coordinates."""
    source = np.array(TEMPLATE) @ (1, 1j)
    target = np.asarray(landmarks, dtype=np.float64) @ (1, 1j)
    centred = source - source.mean()
    turn = np.vdot(centred, target - target.mean()) / np.vdot(centred, centred)
    shift = target.mean() - turn * source.mean()
    return np.array([[turn.real, -turn.imag, shift.real], [turn.imag, turn.real, shift.imag]])


def _wear(
    frames: Frames, scene: Scene, draw: Callable[[Canvas, np.random.Generator], None]
) -> Frames:
    height, width = frames.shape[1:3]

    def dress(i: int, frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
        given = scene.landmarks
        points = default_landmarks(height, width) if given is None else given[i]
        canvas = Canvas(similarity(points), height, width)
        draw(canvas, scene.rng.streams[i])
        return canvas.over(frame)

    return each(frames, dress)


def _curve(*points: tuple[float, float]) -> NDArray[np.float64]:
    """Return a smooth closed outline through the points (closed Catmull-Rom spline)."""
    knots = np.array(points)
    before, after, beyond = np.roll(knots, 1, 0), np.roll(knots, -1, 0), np.roll(knots, -2, 0)
    t = np.linspace(0, 1, 8, endpoint=False)[None, :, None]
    p0, p1, p2, p3 = (part[:, None, :] for part in (before, knots, after, beyond))
    outline = 0.5 * (
        2 * p1
        + (p2 - p0) * t
        + (2 * p0 - 5 * p1 + 4 * p2 - p3) * t**2
        + (3 * p1 - p0 - 3 * p2 + p3) * t**3
    )
    return np.asarray(outline.reshape(-1, 2))


@corruption(
    "medical_mask",
    category="appearance",
    paper=_PAPER,
    presets=own((84.0, 76.0, 70.0, 65.0, 60.0)),
    extended=True,
)
def medical_mask(frames: Frames, scene: Scene, top: float) -> Frames:
    """Wear a pleated mask whose upper edge lies at ``top`` of 112: from mouth only to the eyes."""

    def draw(canvas: Canvas, stream: np.random.Generator) -> None:
        colour = np.array(_MASK_COLOURS[int(stream.integers(len(_MASK_COLOURS)))], dtype=float)
        side = top + 6
        for left in (True, False):
            inner, outer = (24, -4) if left else (88, 116)
            for start, end in ((side + 1, side - 13), (104, 88)):
                strap = [(inner, start), (outer, end), (outer, end + 2), (inner, start + 2.5)]
                canvas.polygon(np.array(strap, dtype=float), tuple(colour * 0.9))
        body = _curve(
            (20, side), (38, top + 2), (56, top - 2), (74, top + 2), (92, side),
            (90, 100), (76, 113), (56, 118), (36, 113), (22, 100),
        )  # fmt: skip
        canvas.polygon(body, tuple(colour))
        for share in (0.3, 0.5, 0.7):
            level = top + share * (114 - top)
            fold = [(23, level), (56, level + 3), (89, level), (89, level + 1.2)]
            fold += [(56, level + 4.4), (23, level + 1.2)]
            canvas.polygon(np.array(fold, dtype=float), tuple(colour * 0.72), 0.8)

    return _wear(frames, scene, draw)


@corruption(
    "sunglasses",
    category="appearance",
    paper=_PAPER,
    presets=own(((0.9, 0.45), (1.0, 0.65), (1.05, 0.82), (1.15, 0.94), (1.3, 1.0))),
    extended=True,
)
def sunglasses(frames: Frames, scene: Scene, size: float, opacity: float) -> Frames:
    """Wear glasses with lenses of this relative size and opacity."""

    def draw(canvas: Canvas, stream: np.random.Generator) -> None:
        for x, y in TEMPLATE[:2]:
            out = -1 if x < 56 else 1
            half = 14.5 * size
            lens = _curve(
                (x - out * 0.85 * half, y - 0.62 * half), (x, y - 0.72 * half),
                (x + out * half, y - 0.6 * half), (x + out * 0.95 * half, y + 0.2 * half),
                (x + out * 0.3 * half, y + 0.85 * half), (x - out * 0.6 * half, y + 0.6 * half),
            )  # fmt: skip
            centre = lens.mean(axis=0)
            canvas.polygon((lens - centre) * 1.1 + centre, _LENS, max(opacity, 0.9) * 0.6)
            canvas.polygon(lens, _LENS, opacity)
            arm = [(x + out * half * 0.9, y - 5), (x + out * 40, y - 8)]
            arm += [(x + out * 40, y - 5), (x + out * half * 0.9, y - 1.5)]
            canvas.polygon(np.array(arm), _LENS)
        bridge = [(45, 48.5), (56, 46.5), (67, 48.5), (67, 51), (56, 49), (45, 51)]
        canvas.polygon(np.array(bridge, dtype=float), _LENS)

    return _wear(frames, scene, draw)


@corruption(
    "cap",
    category="appearance",
    paper=_PAPER,
    presets=own(((16.0, 0.15), (24.0, 0.25), (31.0, 0.35), (37.0, 0.45), (43.0, 0.55))),
    extended=True,
)
def cap(frames: Frames, scene: Scene, brim: float, shadow: float) -> Frames:
    """Wear a cap whose brim ends at ``brim`` of 112 and shades what lies below it."""

    def draw(canvas: Canvas, stream: np.random.Generator) -> None:
        colour = np.array(_CAP_COLOURS[int(stream.integers(len(_CAP_COLOURS)))], dtype=float)
        shade = _curve(
            (6, brim - 6), (106, brim - 6), (96, brim + 12), (56, brim + 18), (16, brim + 12)
        )
        canvas.polygon(shade, (0, 0, 0), shadow)
        crown = _curve(
            (4, brim - 10), (2, brim - 40), (20, brim - 70), (56, brim - 80),
            (92, brim - 70), (110, brim - 40), (108, brim - 10),
        )  # fmt: skip
        canvas.polygon(crown, tuple(colour))
        visor = _curve(
            (0, brim - 12), (56, brim - 18), (112, brim - 12), (100, brim - 1),
            (56, brim + 3), (12, brim - 1),
        )  # fmt: skip
        canvas.polygon(visor, tuple(colour * 0.75))

    return _wear(frames, scene, draw)
