"""OPT: zeroth-order descent on the distance at which a ray meets the boundary (2019).

Each difference costs a bisection, where Sign-OPT asks once: the ancestor, here for comparison. Its
turns are so wide that a bisection sees the difference; line search and first ray are Sign-OPT's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnxfr.attacks._walks import Picture, Walk
from onnxfr.attacks.base import register
from onnxfr.attacks.decision._base import Game, length, unit, wins
from onnxfr.attacks.decision._directions import Directions
from onnxfr.attacks.decision.sign_opt import SignOPT

_BRACKETINGS = 6


@register("opt")
@dataclass(frozen=True)
class OPT(SignOPT):
    """Descent on the distance by differences; ``samples`` of them per step."""

    samples: int = 20
    radius: float = 0.1

    paper: ClassVar[str] = "Cheng et al., ICLR 2019 (arXiv:1807.04457)"

    def downhill(self, game: Game, source: Directions, point: Picture) -> Walk[Picture]:
        """Return the gradient of the distance, by where turned rays meet the boundary."""
        ray, distance = unit(point - game.clean), length(point - game.clean)
        found = np.zeros_like(ray)
        for _ in range(self.samples):
            turn = source.draw(game.random, 1)[0]
            turned = unit(ray + np.float32(self.radius) * turn)
            met = yield from _meets(game, turned, distance, self.precision)
            found += np.float32(distance - met) * turn
        return found


def _meets(game: Game, ray: Picture, distance: float, precision: float) -> Walk[float]:
    """Return where a ray meets the boundary, sought around ``distance``."""

    def picture(at: float) -> Picture:
        return np.clip(game.clean + np.float32(at) * ray, 0, 1)

    low = high = distance
    step = 8 * precision
    won = yield from wins(picture(distance))
    for _ in range(_BRACKETINGS):
        low, high = (low * (1 - step), low) if won else (high, high * (1 + step))
        if (yield from wins(picture(low if won else high))) != won:
            break
        step *= 2
    for _ in range(_BRACKETINGS):
        if high - low <= precision * high:
            break
        middle = (low + high) / 2
        if (yield from wins(picture(middle))):
            high = middle
        else:
            low = middle
    return (low + high) / 2
