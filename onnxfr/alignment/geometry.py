"""Similarity transforms between point sets, and the warp that applies them (Umeyama 1991).

In two dimensions the least-squares similarity without reflection has a closed form: with centred
points written as complex numbers it is one division. Unlike a decomposition per face it works on
any stack of point sets at once and needs no special case for a negative determinant.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from onnxfr.errors import AlignmentError
from onnxfr.types import Pixels

Points = NDArray[np.float64]
"""``(..., K, 2)`` x then y, in pixels; the centre of the top left pixel is (0, 0)."""

Matrix = NDArray[np.float64]
"""``(..., 2, 3)`` affine map of column vectors (x, y, 1)."""


def well_spread(points: Points) -> bool:
    """Whether points are finite and do not all coincide, so that they define a similarity."""
    return bool(np.isfinite(points).all() and (points.var(axis=-2).sum(-1) > 0).all())


def similarity_transform(source: Points, target: Points) -> Matrix:
    """Return the rotation, scale and shift that best carry ``source`` onto ``target``.

    Leading dimensions broadcast: one template serves a whole stack of faces.
    """
    source, target = np.asarray(source, np.float64), np.asarray(target, np.float64)
    if not well_spread(source) or not np.isfinite(target).all():
        raise AlignmentError(
            "expected finite points that do not all coincide, got degenerate landmarks; "
            "no similarity transform is defined by them"
        )
    start, end = _complex(source), _complex(target)
    start_mean, end_mean = start.mean(-1, keepdims=True), end.mean(-1, keepdims=True)
    centred = start - start_mean
    turn = (centred.conj() * (end - end_mean)).sum(-1) / (np.abs(centred) ** 2).sum(-1)
    shift = end_mean[..., 0] - turn * start_mean[..., 0]
    rows = [[turn.real, -turn.imag, shift.real], [turn.imag, turn.real, shift.imag]]
    return np.moveaxis(np.array(rows), (0, 1), (-2, -1))


def transform_points(matrix: Matrix, points: Points) -> Points:
    """Apply one affine map to points ``(..., K, 2)``."""
    mapped: Points = np.asarray(points, np.float64) @ matrix[:, :2].T + matrix[:, 2]
    return mapped


def warp(pixels: Pixels, matrix: Matrix, size: tuple[int, int]) -> Pixels:
    """Resample a picture into a ``(height, width)`` frame: bilinear, black outside.

    Plain bilinear even where the face shrinks: the crops face-recognition networks were trained
    on are made so, and a smoother crop would be a different input distribution.
    """
    height, width = size
    crop = cv2.warpAffine(
        pixels,
        matrix,
        (width, height),
        flags=cv2.INTER_LINEAR,
        borderMode=cv2.BORDER_CONSTANT,
        borderValue=0,
    )
    return np.asarray(crop, dtype=np.uint8)


def coverage(matrix: Matrix, source_size: tuple[int, int], target_size: tuple[int, int]) -> float:
    """Return the share of the target frame that the source picture fills under ``matrix``."""
    inside = warp(np.full((*source_size, 3), 255, dtype=np.uint8), matrix, target_size)
    return float(inside.mean()) / 255


def _complex(points: Points) -> NDArray[np.complex128]:
    return points[..., 0] + 1j * points[..., 1]
