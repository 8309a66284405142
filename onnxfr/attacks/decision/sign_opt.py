"""Sign-OPT: which way the distance to the boundary falls, one question per direction (2020).

The objective is the distance at which a ray from the clean picture meets the boundary. Whether a
turned ray meets it earlier is one question at the present distance; the mean of the signed turns
is the descent direction, and a line search takes the step. The first ray leads to the start instead
of the best of a hundred random ones, and turns have our ``radius`` (see HopSkipJump). A step that
brings nothing is quartered 8 times at most, the first one to 3e-6 of the ray; in published code it
is 15 times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnxfr.attacks._walks import Picture, Walk
from onnxfr.attacks.base import register
from onnxfr.attacks.decision._base import (
    DecisionAttack,
    Game,
    find_boundary,
    length,
    to_boundary,
    unit,
    wins,
)
from onnxfr.attacks.decision._directions import Directions, White
from onnxfr.attacks.decision.hopskipjump import estimate_normal, precision_of

_DOUBLINGS = 15
_QUARTERINGS = 8


@register("sign_opt")
@dataclass(frozen=True)
class SignOPT(DecisionAttack):
    """Descent on the distance by signs.

    Args:
        steps: most descent steps.
        samples: directions per step.
        step_size: first step of the line search, relative to the length of the ray.
        radius: length of a turn, relative to the length of the ray.
        precision: of the line search, relative to the length of the ray.
    """

    steps: int = 1000
    samples: int = 200
    step_size: float = 0.2
    radius: float = 0.005
    precision: float = 2.5e-4

    paper: ClassVar[str] = "Cheng et al., ICLR 2020 (arXiv:1909.10773)"

    def walk(self, game: Game) -> Walk[None]:
        """Estimate the descent direction and follow it."""
        source = White(game.clean.shape)
        point = yield from find_boundary(game, self.precision)
        if point is None:
            return
        step_size = self.step_size
        for _ in range(self.steps):
            downhill = yield from self.downhill(game, source, point)
            point, step_size = yield from _search_line(
                game, point, downhill, step_size, self.precision
            )

    def downhill(self, game: Game, source: Directions, point: Picture) -> Walk[Picture]:
        """Return the direction in which turning the ray shortens it."""
        fine = precision_of(game, point, self.radius, source)
        # The line search has left the point this near; turns want it nearer.
        point = yield from to_boundary(game, point, fine, near=self.precision)
        return (yield from estimate_normal(game, source, point, self.radius, self.samples))


def _search_line(
    game: Game, point: Picture, downhill: Picture, step_size: float, precision: float
) -> Walk[tuple[Picture, float]]:
    """Turn the ray to ``point`` downhill as far as that pays; return the new point and the step."""
    ray, downhill = unit(point - game.clean), unit(downhill)
    best, best_step = point, 0.0
    size = step_size
    for _ in range(_DOUBLINGS):
        found = yield from _shorter(game, ray + np.float32(size) * downhill, best, precision)
        if found is None:
            break
        best, best_step, size = found, size, 2 * size
    if best_step:
        return best, best_step
    for _ in range(_QUARTERINGS):
        size /= 4
        found = yield from _shorter(game, ray + np.float32(size) * downhill, best, precision)
        if found is not None:
            return found, size
    return point, step_size


def _shorter(game: Game, ray: Picture, best: Picture, precision: float) -> Walk[Picture | None]:
    """Return the boundary point of a ray if it is closer than ``best``."""
    distance = length(best - game.clean)
    picture = np.clip(game.clean + np.float32(distance * (1 - precision)) * unit(ray), 0, 1)
    if (yield from wins(picture)):
        return (yield from to_boundary(game, picture, precision, near=1 / 16))
    return None
