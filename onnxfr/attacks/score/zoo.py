"""ZOO: coordinate-wise finite differences and Adam (Chen et al. 2017), on a reduced attack space.

Deviations: a coordinate is a cell of a small grid, the paper's own attack-space reduction, and the
difference spans a visible step instead of 1e-4, which would drown in the rounding of a cosine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnxfr.attacks._walks import Picture, Walk
from onnxfr.attacks.base import register
from onnxfr.attacks.decision._directions import enlarge
from onnxfr.attacks.score._base import ScoreAttack, ScoreGame

_KEEP, _KEEP_SQUARES, _TINY = 0.9, 0.999, 1e-8


@register("zoo")
@dataclass(frozen=True)
class ZOO(ScoreAttack):
    """Estimates some coordinates of the gradient at a time.

    Args:
        steps: most updates; each asks two questions per coordinate and looks once.
        samples: coordinates per update.
        side: width of the grid of coordinates.
        radius: half the span of a difference, in pixel units.
        step_ratio: Adam's learning rate relative to eps.
    """

    steps: int = 2000
    samples: int = 16
    side: int = 16
    radius: float = 0.02
    step_ratio: float = 0.5

    paper: ClassVar[str] = "Chen et al., AISec 2017 (arXiv:1708.03999)"

    def walk(self, game: ScoreGame) -> Walk[None]:
        """Difference, average, step, look."""
        colours, height, width = game.clean.shape
        shape = (colours, min(self.side, height), min(self.side, width))
        change = np.zeros(shape, dtype=np.float32)
        mean, squares, seen = (np.zeros(change.size, dtype=np.float32) for _ in range(3))
        reach = max(self.radius, game.grain)
        for _ in range(self.steps):
            chosen = game.random.choice(change.size, min(self.samples, change.size), replace=False)
            x = self._picture(game, change)
            cells = np.zeros((len(chosen), change.size), dtype=np.float32)
            cells[np.arange(len(chosen)), chosen] = reach
            asked = np.empty((2, len(chosen), *game.clean.shape), dtype=np.float32)
            for cell, up, down in zip(cells, *asked, strict=True):
                bump = enlarge(cell.reshape(shape), game.clean.shape)
                np.clip(x + bump, 0, 1, out=up)
                np.clip(x - bump, 0, 1, out=down)
            margins = yield asked.reshape(-1, *game.clean.shape)
            slope = (margins[: len(chosen)] - margins[len(chosen) :]) / (2 * reach)
            seen[chosen] += 1
            mean[chosen] = _KEEP * mean[chosen] + (1 - _KEEP) * slope
            squares[chosen] = _KEEP_SQUARES * squares[chosen] + (1 - _KEEP_SQUARES) * slope**2
            step = mean[chosen] / (1 - _KEEP ** seen[chosen])
            step /= np.sqrt(squares[chosen] / (1 - _KEEP_SQUARES ** seen[chosen])) + _TINY
            change.reshape(-1)[chosen] += np.float32(self.step_ratio * game.eps) * step
            yield self._picture(game, change)[None]

    def _picture(self, game: ScoreGame, change: Picture) -> Picture:
        return game.project(game.clean + enlarge(change, game.clean.shape))
