"""Bandits: a gradient carried from step to step and shared by neighbours (Ilyas et al. 2019).

Two of the three questions of a step correct the carried gradient, the prior, on a small grid; the
third looks at the picture itself. Deviations: the width of the probes is a root mean square change,
so that one setting fits every picture size. Before a verifier that takes 8-bit pictures it is at
least a grey level, and so is what sets the two probes apart, which shrinks as the prior grows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnxfr.attacks._walks import Picture, Walk
from onnxfr.attacks.base import register
from onnxfr.attacks.decision._base import length
from onnxfr.attacks.decision._directions import mix, tile
from onnxfr.attacks.score._base import ScoreAttack, ScoreGame

_GREY = 1 / 255


@register("bandits")
@dataclass(frozen=True)
class Bandits(ScoreAttack):
    """Gradient descent with a time and a tile prior.

    Args:
        steps: most steps of two questions and a look.
        side: width of the prior's grid.
        radius: root mean square width of the probes, in pixel units.
        explore: size of the random part of a probe relative to the prior.
        prior_rate: learning rate of the prior.
        step_ratio: length of a step relative to eps.
    """

    steps: int = 7000
    side: int = 20
    radius: float = 2.55 * _GREY
    explore: float = 0.1
    prior_rate: float = 0.1
    step_ratio: float = 0.1

    paper: ClassVar[str] = "Ilyas, Engstrom and Madry, ICLR 2019 (arXiv:1807.07978)"

    def walk(self, game: ScoreGame) -> Walk[None]:
        """Probe on both sides of the prior, correct it, step along it."""
        colours, height, width = game.clean.shape
        shape = (colours, min(self.side, height), min(self.side, width))
        prior = np.zeros(shape, dtype=np.float32)
        x, reach = game.clean, max(self.radius, game.grain)
        for _ in range(self.steps):
            noise = game.random.standard_normal(shape, dtype=np.float32)
            noise /= np.float32(np.sqrt(noise.size))
            explore = max(self.explore, length(prior) * game.grain / reach)
            sides = [prior + sign * np.float32(explore) * noise for sign in (1, -1)]
            asked = np.empty((2, *x.shape), dtype=np.float32)
            for probe, side in zip(asked, sides, strict=True):
                along = tile(side, x.shape)
                mix(along, reach / max(_mean_square_root(along), 1e-20), x, 1.0, out=probe)
            margins = yield np.clip(asked, 0, 1, out=asked)
            # On its own, for it says nothing about a probe that gets no verdict.
            yield x[None]
            rise = (margins[0] - margins[1]) / (reach * explore)
            prior = self._corrected(prior, np.float32(rise) * noise, game.rules.norm == "linf")
            along = game.steepest(tile(prior, x.shape))
            x = game.project(x + np.float32(self.step_ratio * game.eps) * along)

    def _corrected(self, prior: Picture, slope: Picture, linf: bool) -> Picture:
        if not linf:
            return prior + np.float32(self.prior_rate) * slope
        # Exponentiated gradients keep the prior between -1 and 1.
        real = (prior + 1) / 2
        up = real * np.exp(np.clip(self.prior_rate * slope, -20, 20))
        down = (1 - real) * np.exp(np.clip(-self.prior_rate * slope, -20, 20))
        return np.asarray(2 * up / (up + down) - 1, dtype=np.float32)


def _mean_square_root(direction: Picture) -> float:
    return float(np.sqrt(np.vdot(direction, direction) / direction.size))
