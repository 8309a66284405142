"""GeoDA: the boundary taken as a plane; straight from the clean picture along its normal (2020).

The normal is estimated in the low frequencies; the share of the questions each step gets grows
geometrically, as the authors derive for a fixed total. Without a cap the total is ``queries``. As
in ART's version the estimates of all steps are added up: near the end they look at nearly the same
point. Of the old and the new boundary point the closer one is kept; the authors keep the new one.
The plan reserves 16 questions for a bisection and the up to 6 that find a win on its ray; published
code reserves 25. No ray from the clean picture may win where a certain person is to be matched:
then the normal is followed from the boundary point, as in HopSkipJump.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnxfr.attacks._settings import Share
from onnxfr.attacks._walks import Picture, Walk
from onnxfr.attacks.base import register
from onnxfr.attacks.decision._base import (
    DecisionAttack,
    Game,
    find_start,
    to_boundary,
    unit,
    wins,
)
from onnxfr.attacks.decision._directions import Cosine
from onnxfr.attacks.decision.hopskipjump import estimate_normal, precision_of
from onnxfr.types import Norm

_BISECTION_COST = 16
_MOST_FIRST = 80
_REACHES = (1.0, 1.6)
_BESIDE = (1.0, 0.5, 0.25, 0.125)


@register("geoda")
@dataclass(frozen=True)
class GeoDA(DecisionAttack):
    """Normal, straight line, bisection, with ever more probes.

    Args:
        queries: the total to plan for where there is no cap.
        growth: mu; step i gets a number of probes proportional to ``growth ** (-2 i / 3)``.
        share: part of each axis of the spectrum that probes fill.
        radius: how far probes go from the point, relative to its distance from the clean picture.
    """

    queries: int = 20_000
    growth: Share = 0.6
    share: Share = 0.25
    radius: float = 0.1

    norms: ClassVar[tuple[Norm, ...]] = ("l2", "linf")
    paper: ClassVar[str] = "Rahmati, Moosavi-Dezfooli, Frossard and Dai, CVPR 2020 (2003.06468)"

    def walk(self, game: Game) -> Walk[None]:
        """Estimate, go, bisect."""
        source = Cosine(game.clean.shape, self.share)
        point = yield from find_start(game)
        if point is None:
            return
        precision = precision_of(game, point, self.radius, source)
        point = yield from to_boundary(game, point, precision)
        normal = np.zeros_like(game.clean)
        for samples in planned(min(game.questions, self.queries), self.growth):
            estimate = yield from estimate_normal(game, source, point, self.radius, samples)
            # The error of an estimate shrinks with the root of its probes.
            normal = normal + np.float32(np.sqrt(samples)) * estimate
            precision = precision_of(game, point, self.radius, source)
            found = yield from _along(game, normal, point, precision)
            if found is not None and game.distance(found) < game.distance(point):
                point = found


def planned(total: int, growth: float) -> list[int]:
    """Return the probes of each step: so many steps that the first gets about 80 of the total."""
    for steps in range(1, 64):
        weights = growth ** (-2 / 3 * np.arange(steps))
        left = max(total - _BISECTION_COST * (steps + 1), steps)
        probes = np.maximum(left * weights / weights.sum(), 1)
        if probes[0] <= _MOST_FIRST:
            break
    return [int(count) for count in probes]


def _along(game: Game, normal: Picture, point: Picture, precision: float) -> Walk[Picture | None]:
    """Return the boundary point on the ray along the normal, else beside the old one, or None."""
    along = np.sign(normal) if game.norm == "linf" else unit(normal)
    distance = game.distance(point)
    rays = [(game.clean, reach) for reach in _REACHES] + [(point, reach) for reach in _BESIDE]
    for origin, reach in rays:
        picture = np.clip(origin + np.float32(reach * distance) * along, 0, 1)
        if (yield from wins(picture)):
            return (yield from to_boundary(game, picture, precision))
    return None
