"""Procedural frost: crystals that grow feathers, drawn once and kept.

Each pane scatters fern crystals (a spine with side branches at about sixty degrees, which carry
branches of their own), lights them from one side, lays them over a cloudy ground, and is then
brought to a mean and a contrast in the range of frost photographs.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from onnxfr.corruptions.base import Floats
from onnxfr.rng import stream

_HEIGHT, _WIDTH = 400, 560
_JOINTS = 14
_SHORTEST = 3.5
_FRACTION_BITS = 3


class Pane(NamedTuple):
    """How one pane looks: tint in RGB, mean and deviation of its grey values, its crystals."""

    tint: tuple[float, float, float]
    mean: float
    sd: float
    crystals: int
    length_range: tuple[float, float]
    spread: float


_PANES = (
    Pane((0.94, 0.99, 1.07), 206, 17.5, 560, (40, 100), math.pi),
    Pane((0.96, 0.99, 1.05), 204, 18, 260, (70, 170), 0.9),
    Pane((0.90, 1.00, 1.10), 154, 24, 900, (20, 56), math.pi),
    Pane((0.88, 1.00, 1.12), 130, 15.5, 210, (70, 180), 0.7),
    Pane((0.91, 1.00, 1.09), 116, 35, 440, (30, 90), math.pi),
    Pane((0.82, 1.04, 1.14), 86, 37, 150, (90, 200), 0.5),
)
"""Contrasts are such that a piece of 112 pixels, which is what a crop gets, has the deviation of
a piece of the photographs in imagecorruptions (13 to 34 grey levels); a whole photograph has more
and would make frost harsher than theirs."""


class Branches(NamedTuple):
    """Many curved lines at once: where each starts (complex), its heading and its length."""

    starts: NDArray[np.complex128]
    headings: NDArray[np.float64]
    lengths: NDArray[np.float64]


@lru_cache(maxsize=1)
def procedural_frost() -> tuple[NDArray[np.uint8], ...]:
    """Return our frost panes as RGB pictures, the same on every machine."""
    return tuple(_draw(pane, number) for number, pane in enumerate(_PANES))


def _draw(pane: Pane, number: int) -> NDArray[np.uint8]:
    rng = stream(0, "frost pane", number)
    ice = 0.12 * _clouds(rng, 4) + 0.10 * _clouds(rng, 9) + 0.05 * _clouds(rng, 30)
    direction = rng.uniform(-math.pi, math.pi)
    for _ in range(3):
        thickness = _grow_layer(pane, rng, direction)
        soft = cv2.GaussianBlur(thickness, (0, 0), 0.7)
        # Light from one side: the slope of the grown ice counts, not only its thickness.
        light = np.array([[-1, -1, 0], [-1, 0, 1], [0, 1, 1]], dtype=np.float32)
        body = cv2.GaussianBlur(thickness, (0, 0), 4)
        ice = ice * (1 - 0.6 * np.minimum(body, 1)) + 0.3 * body
        ice += 0.5 * soft - 0.35 * cv2.filter2D(soft, -1, light)
    ice += 0.04 * rng.standard_normal(ice.shape, dtype=np.float32)
    ice = (ice - ice.mean()) / ice.std() * pane.sd + pane.mean
    tinted = np.clip(ice[..., None] * np.array(pane.tint), 0, 255)
    return np.asarray(tinted, dtype=np.uint8)


def _clouds(rng: np.random.Generator, cells: int) -> Floats:
    coarse = rng.standard_normal((cells, cells), dtype=np.float32)
    return np.asarray(cv2.resize(coarse, (_WIDTH, _HEIGHT), interpolation=cv2.INTER_CUBIC))


def _grow_layer(pane: Pane, rng: np.random.Generator, direction: float) -> Floats:
    """Return the thickness of a third of the pane's crystals."""
    thickness = np.zeros((_HEIGHT, _WIDTH), dtype=np.float32)
    count = pane.crystals // 3
    branches = Branches(
        rng.uniform(0, _WIDTH, count) + 1j * rng.uniform(0, _HEIGHT, count),
        direction + rng.uniform(-pane.spread, pane.spread, count),
        rng.uniform(*pane.length_range, count),
    )
    generations = []
    for brightness in (1.0, 0.75, 0.5):
        points = _trace(branches, rng)
        corners = np.stack([points.real, points.imag], axis=-1) * (1 << _FRACTION_BITS)
        generations.append((brightness, list(np.rint(corners).astype(np.int32))))
        branches = _sprout(branches, points, rng)
    for brightness, lines in reversed(generations):
        cv2.polylines(thickness, lines, False, brightness, 1, cv2.LINE_AA, _FRACTION_BITS)
    return thickness


def _trace(branches: Branches, rng: np.random.Generator) -> NDArray[np.complex128]:
    """Return the joints of every branch, ``(branches, joints)``, each bent a little."""
    bend = rng.uniform(-0.3, 0.3, (len(branches.starts), 1)) * np.linspace(0, 1, _JOINTS)
    strides = branches.lengths[:, None] / _JOINTS * np.exp(1j * (branches.headings[:, None] + bend))
    strides[:, 0] = 0
    return np.asarray(branches.starts[:, None] + np.cumsum(strides, axis=1))


def _sprout(
    branches: Branches, points: NDArray[np.complex128], rng: np.random.Generator
) -> Branches:
    """Return a pair of side branches per joint, shorter towards the tip, the tiny ones left out."""
    shape = (*points.shape, 2)
    sides = np.array([-1.0, 1.0]) * (math.pi / 3) * rng.uniform(0.75, 1.0, shape)
    shares = np.linspace(1, 0, _JOINTS)[None, :, None] * rng.uniform(0.15, 0.38, shape)
    lengths = (branches.lengths[:, None, None] * shares).ravel()
    headings = (branches.headings[:, None, None] + sides).ravel()
    grown = lengths > _SHORTEST
    starts = np.repeat(points.ravel(), 2)
    return Branches(starts[grown], headings[grown], lengths[grown])
