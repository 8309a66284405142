"""The input gradient against central differences of onnxruntime's own scores.

The step is the one at which the differences themselves have settled, judged without looking at the
gradient: too small a step measures float32 noise, too large a one curvature and kinks.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from onnxfr.models.wrapper import OnnxModel
from onnxfr.rng import stream
from onnxfr.types import Images

_STEPS = (1e-6, 2e-6, 4e-6, 8e-6, 1.6e-5, 3.2e-5, 6.4e-5, 1.3e-4)
_WIDE_STEP = 1e-3
_DIRECTIONS = 8
_PICTURES = 4


def gradient_error(model: OnnxModel, batch: Images) -> float | None:
    """Largest relative error, over pictures, of the gradient against onnxruntime's differences.

    Infinite where a gradient is NaN or infinite, None where neither engine's answer moves at all.

    Along each random direction the score is the embedding's component in which it moves most, found
    by one wide difference: a step small enough to meet hardly a kink then still stands far above
    float32 noise. The error is the median over directions, relative to the size of the slopes: a
    wrong gradient shows in every direction, because each moves every pixel, a kink only in one.
    """
    found = []
    for k in range(min(_PICTURES, len(batch))):
        image = batch[k : k + 1]
        rng = stream(0, "gradient directions", k)
        directions = rng.integers(0, 2, (_DIRECTIONS, *image.shape[1:])).astype(np.float32) * 2 - 1
        moves = _central_difference(model, image, directions, _WIDE_STEP)[0]
        scores = moves / np.maximum(np.linalg.norm(moves, axis=1, keepdims=True), 1e-12)
        variable = torch.from_numpy(image.repeat(_DIRECTIONS, axis=0)).requires_grad_(True)
        score = (model.embed_grad(variable) * torch.from_numpy(scores.astype(np.float32))).sum()
        (slopes,) = torch.autograd.grad(score, variable)
        if not bool(torch.isfinite(slopes).all()):
            return math.inf
        rungs = [_central_difference(model, image, directions, step) for step in _STEPS]
        measured = np.stack([(change * scores).sum(axis=1) for change, _ in rungs])
        predicted = np.stack(
            [(moved * slopes.numpy()).sum(axis=(1, 2, 3), dtype=np.float64) for _, moved in rungs]
        )
        settled = int(np.median(np.abs(np.diff(measured, axis=0)), axis=1).argmin())
        errors = np.abs(measured[settled] - predicted[settled])
        size = float(np.sqrt(np.mean(measured[settled] ** 2)))
        if size or errors.any():
            found.append(float(np.median(errors)) / max(size, 1e-12))
    return max(found, default=None)


def _central_difference(
    model: OnnxModel, image: Images, directions: NDArray[np.float32], step: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return embedding change and picture change per unit step, the latter as float32 made it."""
    pictures = np.concatenate([image + step * directions, image - step * directions])
    rows = model.engine.run(pictures.astype(np.float32)).astype(np.float64)
    up, down = np.split(rows, 2)
    above, below = np.split(pictures.astype(np.float64), 2)
    return (up - down) / (2 * step), (above - below) / (2 * step)
