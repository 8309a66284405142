"""SurFree: no gradient at all, only turns in random planes (2021).

A random smooth direction spans a plane with the current one; the circle over the current point is
tried at an angle to both sides, and where one wins the angle is bisected. Directions are ternary
cosine coefficients weighted by the picture's own spectrum. The authors also make each direction
orthogonal to the last hundred; in thousands of dimensions random ones are, within a percent. Before
a verifier of 8-bit files each plane holds the file that won last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from onnxfr.attacks._settings import Range, Share
from onnxfr.attacks._walks import Walk
from onnxfr.attacks.base import register
from onnxfr.attacks.decision._base import DecisionAttack, Game, find_boundary, wins
from onnxfr.attacks.decision._circle import Circle
from onnxfr.attacks.decision._directions import Cosine

_BISECTIONS = 7


@register("surfree")
@dataclass(frozen=True)
class SurFree(DecisionAttack):
    """Random planes, one circle each.

    Args:
        steps: most planes.
        angle: first angle to try, in degrees.
        adaptation: the angle is multiplied by this after a failure, divided by it after a win.
        share: part of each axis of the spectrum that directions fill.
    """

    steps: int = 20_000
    angle: Annotated[float, Range(high=90.0)] = 30.0
    adaptation: Share = 0.95
    share: Share = 0.5

    paper: ClassVar[str] = "Maho, Furon and Le Merrer, CVPR 2021 (arXiv:2011.12807)"

    def walk(self, game: Game) -> Walk[None]:
        """Turn; keep what wins."""
        point = yield from find_boundary(game, precision=0.01)
        if point is None:
            return
        source = Cosine(game.clean.shape, self.share, ternary=True)
        source.weights = np.tanh(np.abs(source.waves(game.clean)))
        angle, circle = np.deg2rad(self.angle), Circle(game, game.shown(point))
        for _ in range(self.steps):
            turn = yield from _turn(circle.bulge(source.raw(game.random, 1)[0]), angle)
            if turn:
                circle = Circle(game, game.shown(circle.at(turn)))
            angle = min(angle / self.adaptation if turn else angle * self.adaptation, np.pi / 4)


def _turn(circle: Circle, angle: float) -> Walk[float]:
    """Return the largest angle known to win, negative on the other side, 0 if there is none."""
    for side in (1.0, -1.0):
        if (yield from wins(circle.at(side * angle))):
            low, high = angle, min(2 * angle, np.pi / 2)
            for _ in range(_BISECTIONS):
                if np.cos(low) - np.cos(high) < 0.01:
                    break
                middle = (low + high) / 2
                if (yield from wins(circle.at(side * middle))):
                    low = middle
                else:
                    high = middle
            return side * low
    return 0.0
