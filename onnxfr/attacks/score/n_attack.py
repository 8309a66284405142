"""N-Attack: the mean of a Gaussian over changes, moved towards those that score (Li et al. 2019).

The Gaussian lives on a small grid in the space where pixels are hyperbolic tangents.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnxfr.attacks._settings import OrNone
from onnxfr.attacks._walks import CHUNK, Walk
from onnxfr.attacks.base import register
from onnxfr.attacks.decision._directions import enlarge
from onnxfr.attacks.score._base import ScoreAttack, ScoreGame
from onnxfr.rng import gaussian
from onnxfr.types import Images

_INSIDE = 0.999
_TINY = 1e-7


@register("n_attack")
@dataclass(frozen=True)
class NAttack(ScoreAttack):
    """Learns where winning changes lie instead of one change.

    Args:
        steps: most updates of the mean.
        samples: changes drawn per update.
        learning_rate: of the mean.
        deviation: of the Gaussian, also of the mean's random start.
        side: width of the grid, enlarged to the picture; 0 works on every pixel.
    """

    steps: int = 1000
    samples: int = 100
    learning_rate: float = 0.02
    deviation: float = 0.1
    side: OrNone = 32

    paper: ClassVar[str] = "Li et al., ICML 2019 (arXiv:1905.00441)"

    def walk(self, game: ScoreGame) -> Walk[None]:
        """Draw, score, standardise, move the mean."""
        colours, height, width = game.clean.shape
        small = (min(self.side or height, height), min(self.side or width, width))
        shape = (colours, *small)
        mean = np.float32(self.deviation) * game.random.standard_normal(shape, dtype=np.float32)
        bent = np.arctanh((2 * game.clean - 1) * np.float32(_INSIDE))
        for _ in range(self.steps):
            draws = gaussian(game.random, self.samples, shape)
            margins = []
            for start in range(0, self.samples, CHUNK):
                points = mean + np.float32(self.deviation) * draws[start : start + CHUNK]
                margins.append((yield self._pictures(game, bent, points)))
            gain = np.concatenate(margins).astype(np.float32)
            gain = (gain - gain.mean()) / (gain.std() + np.float32(_TINY))
            slope = np.tensordot(gain, draws, 1) / np.float32(self.samples * self.deviation)
            mean = mean + np.float32(self.learning_rate) * slope

    def _pictures(self, game: ScoreGame, bent: Images, points: Images) -> Images:
        pictures = np.empty((len(points), *game.clean.shape), dtype=np.float32)
        for point, picture in zip(points, pictures, strict=True):
            enlarge(point, game.clean.shape, picture)
            picture += bent
            np.tanh(picture, out=picture)
            picture += 1
            picture /= 2
            picture[:] = game.project(picture)
        return pictures
