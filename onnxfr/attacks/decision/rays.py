"""RayS: the linf ray of signs that meets the boundary first, by flips of ever smaller blocks.

The paper's first ray is all ones. A verifier that must accept a certain person never does so along
such a ray, so ours leads to the start: each pixel moves towards it and no farther; a flipped block
moves to the opposite end of the pixel range. Where the start is noise that is the paper's attack.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnxfr.attacks._settings import Part
from onnxfr.attacks._walks import Walk
from onnxfr.attacks.base import register
from onnxfr.attacks.decision._base import (
    DecisionAttack,
    Game,
    find_start,
    to_boundary,
    wins,
)
from onnxfr.types import Norm


@register("rays")
@dataclass(frozen=True)
class RayS(DecisionAttack):
    """Hierarchical sign flips.

    Args:
        steps: most flips tried.
        precision: of the bisection along a ray, relative to the radius.
    """

    steps: int = 40_000
    precision: Part = 0.01

    norms: ClassVar[tuple[Norm, ...]] = ("linf",)
    paper: ClassVar[str] = "Chen and Gu, KDD 2020 (arXiv:2006.12792)"

    def walk(self, game: Game) -> Walk[None]:
        """Flip one block after another; keep flips that still win."""
        goal = yield from find_start(game)
        if goal is None:
            return
        point = yield from to_boundary(game, goal, self.precision)
        radius = np.float32(game.distance(point))
        flat, clean = goal.ravel().copy(), game.clean.ravel()
        blocks, block = 1, 0
        for _ in range(self.steps):
            here = slice(block * flat.size // blocks, (block + 1) * flat.size // blocks)
            flipped = flat.copy()
            flipped[here] = np.where(flat[here] > clean[here], 0, 1)
            candidate = np.clip(flipped, clean - radius, clean + radius).reshape(goal.shape)
            if (yield from wins(candidate)):
                flat = flipped
                point = yield from to_boundary(game, candidate, self.precision, near=1 / 16)
                radius = np.float32(game.distance(point))
            block += 1
            if block == blocks:
                blocks, block = min(2 * blocks, flat.size), 0
