"""Boundary: a random walk along the boundary that keeps only winning steps (2018).

Each candidate goes a little around the clean picture and a little towards it; the two step sizes
follow the rates at which candidates win. The authors' code looks at every tenth candidate and needs
a thousand of them before its first adaptation; here every candidate counts, and the points on the
sphere, which cost a question each, are judged by twenty. Before a verifier of 8-bit files the walk
goes on from the file that won.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from onnxfr.attacks._settings import NotNegative, Range
from onnxfr.attacks._walks import Picture, Walk
from onnxfr.attacks.base import register
from onnxfr.attacks.decision._base import DecisionAttack, Game, find_boundary, length
from onnxfr.attacks.decision._directions import White

_SPHERICAL_WINDOW = 20
_STEP_WINDOW = 30
_CHECK_EVERY = 10


@register("boundary")
@dataclass(frozen=True)
class Boundary(DecisionAttack):
    """Rejection sampling next to the boundary.

    Args:
        steps: most candidates.
        spherical_step: first step around the clean picture, relative to the distance.
        source_step: first step towards it, relative to the distance.
        adaptation: factor by which the steps change.
        converged: ends when the step towards the clean picture is this small.
    """

    steps: int = 25_000
    spherical_step: float = 0.01
    source_step: float = 0.01
    adaptation: Annotated[float, Range(1.0, with_low=True)] = 1.5
    converged: NotNegative = 1e-7

    paper: ClassVar[str] = "Brendel, Rauber and Bethge, ICLR 2018 (arXiv:1712.04248)"

    def walk(self, game: Game) -> Walk[None]:
        """Step around and inwards; keep what wins."""
        point = yield from find_boundary(game)
        if point is None:
            return
        white = White(game.clean.shape)
        around, inwards = self.spherical_step, self.source_step
        spherical: deque[bool] = deque(maxlen=_SPHERICAL_WINDOW)
        steps: deque[bool] = deque(maxlen=_STEP_WINDOW)
        for step in range(self.steps):
            noise = white.draw(game.random, 1)[0]
            sphere, candidate = map(game.shown, _candidates(game, point, noise, around, inwards))
            check = step % _CHECK_EVERY == 0
            answers = yield np.stack([candidate, sphere]) if check else candidate[None]
            steps.append(bool(answers[0]))
            if check:
                spherical.append(bool(answers[1]))
            if answers[0] and game.distance(candidate) < game.distance(point):
                point = candidate
            if len(spherical) == _SPHERICAL_WINDOW:
                factor = _factor(spherical, 0.5, self.adaptation)
                around, inwards = around * factor, inwards * factor
            if len(steps) == _STEP_WINDOW:
                inwards *= _factor(steps, 0.25, self.adaptation)
            if inwards < self.converged:
                return


def _candidates(
    game: Game, point: Picture, noise: Picture, around: float, inwards: float
) -> tuple[Picture, Picture]:
    """Return a point beside ``point`` on the sphere around the clean picture, and one within.

    ``noise`` has length 1.
    """
    clean, way = game.clean, game.clean - point
    distance = length(way)
    if distance == 0:
        return point, point
    # The part of the noise across the way has this length, and a right angle with the way.
    along = float(np.vdot(noise, way)) / distance**2
    across = np.sqrt(max(1 - (along * distance) ** 2, 1e-20))
    turn, back = around * distance / across, np.sqrt(1 + around**2)
    sphere = noise * np.float32(turn / back)
    sphere -= way * np.float32((1 + turn * along) / back)
    sphere += clean
    np.clip(sphere, 0, 1, out=sphere)
    left = clean - sphere
    gap = max(length(left), 1e-20)
    # Clipping moves the point off its sphere: the second step makes up for what that changed.
    left *= np.float32(max(inwards * distance + gap - distance, 0.0) / gap)
    left += sphere
    return sphere, np.clip(left, 0, 1, out=left)


def _factor(window: deque[bool], much: float, adaptation: float) -> float:
    """Return how a step changes by the share of wins in a full window, which starts afresh."""
    share = sum(window) / len(window)
    if share > much or share < much * 0.4:
        window.clear()
        return adaptation if share > much else 1 / adaptation
    return 1.0
