"""NES: a gradient from antithetic Gaussian probes, then a step of BIM (Ilyas et al. 2018).

ARES's settings. Deviation: before a verifier that takes 8-bit pictures the probes are at least one
grey level wide, since finer ones would all be answered alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnxfr.attacks._walks import CHUNK, Picture, Walk
from onnxfr.attacks.base import register
from onnxfr.attacks.decision._directions import Directions, Enlarged, White
from onnxfr.attacks.score._base import ScoreAttack, ScoreGame
from onnxfr.types import Images

_PATIENCE = 5
_DECAY = 0.5


@register("nes")
@dataclass(frozen=True)
class NES(ScoreAttack):
    """Steps along estimated gradients, shorter ones when the margin no longer grows.

    Args:
        steps: most steps; the cap on questions usually comes first.
        samples: probes per estimate, half of them mirrored.
        radius: width of the probes in pixel units.
        step_ratio: length of the first step relative to eps.
        least_ratio: length of the shortest step relative to eps.
        side: draw the probes this small and enlarge them; 0 draws every pixel.
    """

    steps: int = 1000
    samples: int = 100
    radius: float = 1e-3
    step_ratio: float = 0.15
    least_ratio: float = 0.015
    side: int = 0

    paper: ClassVar[str] = "Ilyas et al., ICML 2018 (arXiv:1804.08598)"

    def probes(self, game: ScoreGame, count: int) -> Images:
        """Draw probes of about unit size per pixel."""
        shape = game.clean.shape
        source: Directions = Enlarged(shape, self.side) if self.side else White(shape)
        return source.raw(game.random, count)

    def walk(self, game: ScoreGame) -> Walk[None]:
        """Estimate, step, look; halve the step after five looks without gain."""
        x, size = game.clean, self.step_ratio * game.eps
        best, since = -np.inf, 0
        for _ in range(self.steps):
            slope = yield from self._estimate(game, x)
            x = game.project(x + np.float32(size) * game.steepest(slope))
            margin = float((yield x[None])[0])
            since = 0 if margin > best else since + 1
            best = max(best, margin)
            if since >= _PATIENCE:
                size, since = max(size * _DECAY, self.least_ratio * game.eps), 0

    def _estimate(self, game: ScoreGame, x: Picture) -> Walk[Picture]:
        width = np.float32(max(self.radius, game.grain))
        slope = np.zeros_like(x)
        pairs = max(self.samples // 2, 1)
        for start in range(0, pairs, CHUNK // 2):
            probes = self.probes(game, min(CHUNK // 2, pairs - start))
            moved = np.concatenate([probes, probes])
            for k, point in enumerate(moved):
                point *= width if k < len(probes) else -width
                point += x
                np.clip(point, 0, 1, out=point)
            margins = yield moved
            gain = margins[: len(probes)] - margins[len(probes) :]
            slope += np.tensordot(gain.astype(np.float32), probes, 1)
        return slope
