"""HopSkipJump: the normal of the boundary from the answers around a point, then a jump along it.

The paper ties the radius of its probes to the precision of its bisection; both shrink with the
dimension, at 112 x 112 to a hundred-thousandth of the distance, which no 8-bit file holds. Here
probes have a ``radius`` of their own, relative to the distance and never finer than the verifier's
grey levels, and bisection ends when the point is as near to the boundary as a probe reaches along
the normal: about 16 questions instead of 23. The step size search asks about each jump drawn in to
the present distance, so that a step never leads away from the clean picture; in the paper any win
ends it, and first steps did lead away.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnxfr.attacks._walks import CHUNK, Picture, Walk
from onnxfr.attacks.base import register
from onnxfr.attacks.decision._base import (
    DecisionAttack,
    Game,
    find_start,
    length,
    to_boundary,
    unit,
    wins,
)
from onnxfr.attacks.decision._directions import Directions, Uniform, White
from onnxfr.types import Norm

HALVINGS = 12


@register("hopskipjump")
@dataclass(frozen=True)
class HopSkipJump(DecisionAttack):
    """Probes around the boundary point, one jump, bisection back, over and over.

    Args:
        steps: most jumps.
        samples: probes of the first step; step t takes ``samples * sqrt(t)``.
        most_samples: no step takes more.
        radius: how far probes go from the point, relative to its distance from the clean picture.
    """

    steps: int = 128
    samples: int = 100
    most_samples: int = 10_000
    radius: float = 0.01

    norms: ClassVar[tuple[Norm, ...]] = ("l2", "linf")
    paper: ClassVar[str] = "Chen, Jordan and Wainwright, S&P 2020 (arXiv:1904.02144)"

    def directions(self, game: Game) -> Directions:
        """Return where the probes go, as in the paper; subclasses restrict them."""
        shape = game.clean.shape
        return Uniform(shape) if game.norm == "linf" else White(shape)

    def jump(self, game: Game, point: Picture, normal: Picture, step: int) -> Iterator[Picture]:
        """Return the points to try, the boldest first."""
        along = np.sign(normal) if game.norm == "linf" else unit(normal)
        reach = game.distance(point) / np.sqrt(step)
        for k in range(HALVINGS):
            yield np.clip(point + np.float32(reach / 2**k) * along, 0, 1)

    def walk(self, game: Game) -> Walk[None]:
        """Alternate between estimating the normal, jumping and bisecting."""
        source = self.directions(game)
        point = yield from find_start(game)
        if point is None:
            return
        precision = precision_of(game, point, self.radius, source)
        point = yield from to_boundary(game, point, precision)
        for step in range(1, self.steps + 1):
            samples = min(int(self.samples * np.sqrt(step)), self.most_samples)
            normal = yield from estimate_normal(game, source, point, self.radius, samples)
            precision = precision_of(game, point, self.radius, source)
            for candidate in self.jump(game, point, normal, step):
                closer = _drawn_in(game, candidate, (1 - precision) * game.distance(point))
                if (yield from wins(closer)):
                    point = yield from to_boundary(game, closer, precision, near=1 / 8)
                    break


def _drawn_in(game: Game, candidate: Picture, distance: float) -> Picture:
    """Return a candidate, moved towards the clean picture if it is farther than ``distance``."""
    share = distance / max(game.distance(candidate), 1e-20)
    return candidate if share >= 1 else game.towards(candidate, share)


def reach_of(game: Game, point: Picture, radius: float) -> float:
    """Return the length of probes: a share of the distance, but a grey level where files are sent.

    Finer probes than that would be rounded to the same file.
    """
    return max(radius * length(point - game.clean), game.grain * math.sqrt(game.clean.size))


def precision_of(game: Game, point: Picture, radius: float, source: Directions) -> float:
    """Return how near to the boundary, relative to the distance, probes want their centre.

    A probe in d dimensions moves about 1 / sqrt(d) of its length along the normal.
    """
    distance = max(length(point - game.clean), 1e-20)
    return reach_of(game, point, radius) / distance / math.sqrt(source.dims) / 2


def estimate_normal(
    game: Game, source: Directions, point: Picture, radius: float, samples: int
) -> Walk[Picture]:
    """Return the mean of random directions, weighted by whether they win, of length 1."""
    reach = reach_of(game, point, radius)
    sums = np.zeros((2, game.clean.size), np.float32)
    won = 0
    for start in range(0, samples, CHUNK):
        probes = source.draw(game.random, min(CHUNK, samples - start), reach)
        for probe in probes:
            probe += point
            np.clip(probe, 0, 1, out=probe)
        answers = yield probes
        won += int(answers.sum())
        sums += np.stack([answers, ~answers]).astype(np.float32) @ probes.reshape(len(probes), -1)
    winning, losing = sums.reshape(2, *game.clean.shape)
    # The mean of the wins against that of the losses: an off-centre point cancels out.
    if won == 0:
        return unit(samples * point - losing)
    if won == samples:
        return unit(winning - samples * point)
    return unit(winning / won - losing / (samples - won))
