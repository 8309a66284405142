"""Where the decision boundary is: on a linearised margin, and on the way to a win."""

from __future__ import annotations

import numpy as np
import torch

from onnxfr.oracle import Oracle
from onnxfr.threat import Threat

_HALVINGS = 30
_LOOKS = 6
_BEYOND_BELIEF = 16 / 255
_OFF = 1 / 255


def is_flat(way: torch.Tensor) -> torch.Tensor:
    """Tell where the gradient at the clean picture is no measure of the way to the boundary.

    The cosine of a picture with (nearly) itself is at its top, so that its gradient promises a way
    that is ten times too long and more; one grey level off the top it is an honest one.
    """
    return way > _BEYOND_BELIEF


def off_flat(way: torch.Tensor) -> torch.Tensor:
    """Return how far the first step goes: a grey level where the clean picture is at the top."""
    return torch.where(is_flat(way), torch.full_like(way, _OFF), way)


def onto_boundary(
    point: torch.Tensor,
    anchor: torch.Tensor,
    margin: torch.Tensor,
    slope: torch.Tensor,
    threat: Threat,
) -> torch.Tensor:
    """Return where ``point`` meets the plane ``margin + slope . (x - anchor) = 0`` soonest.

    The point moves along the norm's steepest direction and sticks at 0 and 1 on the way, which is
    the exact projection for both norms; where the range holds no such point, the farthest is taken.
    """
    along = threat.steepest(slope)
    gap = -(margin + (slope * (point - anchor)).flatten(1).sum(1))
    direction = along * gap.sign().reshape(-1, 1, 1, 1)
    steepness = (slope * along).flatten(1).sum(1).clamp_min(1e-30)
    # Pixels that stick make the way longer than without a range; 64 times covers nearly all stuck.
    high = (gap.abs() / steepness * 64).clamp_max(1e3)
    low = torch.zeros_like(high)
    aim = gap.abs()
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        moved = _move(point, direction, middle)
        reached = (slope * (moved - point)).flatten(1).sum(1).abs() >= aim
        low, high = torch.where(reached, low, middle), torch.where(reached, middle, high)
    return _move(point, direction, high)


def _move(point: torch.Tensor, direction: torch.Tensor, way: torch.Tensor) -> torch.Tensor:
    return (point + direction * way.reshape(-1, 1, 1, 1)).clamp(0.0, 1.0)


def pull_in(oracle: Oracle, clean: torch.Tensor, reach: float) -> None:
    """Bisect between each closest win and the point a share ``reach`` nearer to the clean picture.

    A few decisions, each a third of a gradient, take off what the last change of length left.
    """
    rows = np.flatnonzero(np.isfinite(oracle.best_distance))
    if not rows.size:
        return
    start = clean[torch.as_tensor(rows)]
    change = oracle.tensor(oracle.best[rows]) - start
    low, high = np.full(len(rows), 1.0 - reach), np.ones(len(rows))
    for _ in range(_LOOKS):
        middle = (low + high) / 2
        scale = torch.as_tensor(middle, dtype=start.dtype, device=start.device)
        won = oracle.decide(start + scale.reshape(-1, 1, 1, 1) * change, rows)
        low, high = np.where(won, low, middle), np.where(won, middle, high)
