"""CGBA: along a circle from the boundary point to the clean picture, in the plane of the normal.

The circle begins on the winning side and ends at the clean picture, so bisection of the angle
always finds the boundary, closer than before. Probes stay in the low frequencies, as in the
authors' code; their number grows with the square root of the step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnxfr.attacks._settings import Share
from onnxfr.attacks._walks import Walk
from onnxfr.attacks.base import register
from onnxfr.attacks.decision._base import DecisionAttack, Game, bisect, find_start, to_boundary
from onnxfr.attacks.decision._circle import Circle
from onnxfr.attacks.decision._directions import Cosine
from onnxfr.attacks.decision.hopskipjump import estimate_normal, precision_of


@register("cgba")
@dataclass(frozen=True)
class CGBA(DecisionAttack):
    """Curvature-aware walk along circles.

    Args:
        steps: most circles.
        samples: probes of the first step; step t takes ``samples * sqrt(t)``.
        share: part of each axis of the spectrum that probes fill.
        radius: how far probes go from the point, relative to its distance from the clean picture.
    """

    steps: int = 500
    samples: int = 30
    share: Share = 0.25
    radius: float = 0.1

    paper: ClassVar[str] = "Reza, Rahmati, Wu and Dai, ICCV 2023 (arXiv:2308.03163)"

    def walk(self, game: Game) -> Walk[None]:
        """Alternate between estimating the normal and following the circle."""
        source = Cosine(game.clean.shape, self.share)
        point = yield from find_start(game)
        if point is None:
            return
        precision = precision_of(game, point, self.radius, source)
        point = yield from to_boundary(game, point, precision)
        for step in range(1, self.steps + 1):
            samples = int(self.samples * np.sqrt(step))
            normal = yield from estimate_normal(game, source, point, self.radius, samples)
            circle = Circle(game, point).bulge(normal)
            precision = precision_of(game, point, self.radius, source)
            share = yield from bisect(circle.at_share, precision, near=1 / 8)
            if share < 1:
                point = circle.at_share(share)
