"""Geometry shared by the views: squares, resizing with a border, rotation; one setting per row."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from onnxfr.errors import SpecError

Points = NDArray[np.float64]


def without_squares(shape: tuple[int, int], centres: Points, side: int) -> NDArray[np.float32]:
    """Return masks ``(N, 1, H, W)``: 0 in squares around ``centres`` (N, m, 2: x, y), else 1."""
    height, width = shape
    mask = np.ones((len(centres), 1, height, width), dtype=np.float32)
    low = np.floor(centres + 0.5).astype(int) - side // 2
    for row, corners in enumerate(low):
        for x, y in corners:
            mask[row, 0, max(y, 0) : max(y + side, 0), max(x, 0) : max(x + side, 0)] = 0
    return mask


def affine(x: torch.Tensor, matrices: NDArray[np.float32], mode: str = "bilinear") -> torch.Tensor:
    """Resample each row by its own 2 x 3 matrix (output to input, both in [-1, 1])."""
    grid = functional.affine_grid(
        torch.as_tensor(matrices, dtype=x.dtype, device=x.device),
        list(x.shape),
        align_corners=False,
    )
    return functional.grid_sample(x, grid, mode=mode, align_corners=False)


def rotation(angles: NDArray[np.float32], height: int, width: int) -> NDArray[np.float32]:
    """Return the matrices that turn pictures by ``angles`` (radians) about their middle."""
    cos, sin, zero = np.cos(angles), np.sin(angles), np.zeros_like(angles)
    top = np.stack([cos, -sin * height / width, zero], axis=1)
    bottom = np.stack([sin * width / height, cos, zero], axis=1)
    return np.stack([top, bottom], axis=1).astype(np.float32)


def cuts(length: int, parts: int, draws: NDArray[np.float32]) -> list[int]:
    """Return the lengths of ``parts`` random pieces of at least one pixel each."""
    if parts > length:
        raise SpecError(f"blocks is at most the picture's {length} pixels a side; got {parts}")
    shares = draws / draws.sum() * (length - parts)
    edges = np.floor(np.concatenate([[0.0], np.cumsum(shares)]) + 0.5).astype(int)
    edges[-1] = length - parts
    return [int(piece) + 1 for piece in np.diff(edges)]
