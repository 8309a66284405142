"""Evolutionary: a (1+1) evolution strategy with its own covariance, made for faces (2019).

Mutations live in a picture of 32 x 32 (the authors' code for faces) and move a twentieth of its
values at a time, chosen by how much each value has varied in winning mutations so far. The bias
towards the clean picture is kept per pair; released code shares it between pairs by mistake.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from onnxfr.attacks._settings import Part, Share
from onnxfr.attacks._walks import Picture, Walk
from onnxfr.attacks.base import register
from onnxfr.attacks.decision._base import DecisionAttack, Game, find_boundary, length
from onnxfr.attacks.decision._directions import enlarge, mix

_PATH_MEMORY = 0.99
_COVARIANCE_RATE = 0.001
_WANTED_RATE = 0.2
_WINDOW = 30


@register("evolutionary")
@dataclass(frozen=True)
class Evolutionary(DecisionAttack):
    """Covariance-adapted random search next to the boundary.

    Args:
        steps: most candidates.
        side: height and width of the picture in which mutations are drawn.
        chosen: share of its values that one mutation moves.
        mutation: length of a mutation, relative to the distance.
        bias: first step towards the clean picture, relative to the distance.
    """

    steps: int = 20_000
    side: int = 32
    chosen: Share = 0.05
    mutation: float = 0.03
    bias: Part = 0.01

    paper: ClassVar[str] = "Dong et al., CVPR 2019 (arXiv:1904.04433)"

    def walk(self, game: Game) -> Walk[None]:
        """Mutate; keep what wins and learn from it."""
        point = yield from find_boundary(game)
        if point is None:
            return
        side = min(self.side, *game.clean.shape[1:])
        shape = (game.clean.shape[0], side, side)
        covariance, path = np.ones(shape, np.float32), np.zeros(shape, np.float32)
        bias, won, way = self.bias, 0, point - game.clean
        distance = length(way)
        for step in range(1, self.steps + 1):
            mutation = self._mutation(game, covariance)
            candidate = self._candidate(game, way, distance, mutation, bias)
            answers = yield candidate[None]
            if answers[0]:
                way, won = candidate - game.clean, won + 1
                distance = length(way)
                path = _PATH_MEMORY * path + math.sqrt(1 - _PATH_MEMORY**2) * mutation
                covariance += _COVARIANCE_RATE * (np.square(path) - covariance)
            if step % _WINDOW == 0:
                bias, won = bias * math.exp(won / _WINDOW - _WANTED_RATE), 0

    def _mutation(self, game: Game, covariance: Picture) -> Picture:
        """Return small-picture noise on values chosen with probability ~ their variance."""
        chosen = max(1, round(covariance.size * self.chosen))
        # The earliest of waiting times whose rates are the weights: a draw without replacement.
        rates = covariance.ravel()
        waits = game.random.standard_exponential(rates.size, dtype=np.float32) / rates
        places = _earliest(waits, chosen, 2 * chosen / float(rates.sum()))
        mutation = np.zeros(rates.size, np.float32)
        spread = np.sqrt(rates[places])
        mutation[places] = game.random.standard_normal(chosen, dtype=np.float32) * spread
        return mutation.reshape(covariance.shape)

    def _candidate(
        self, game: Game, way: Picture, distance: float, mutation: Picture, bias: float
    ) -> Picture:
        """Return a mutated point as far from the clean picture as the bias wants it.

        It is asked about once and costs five passes over the picture: an engine that answers in two
        milliseconds would wait for more.
        """
        moved = enlarge(mutation, game.clean.shape)
        mutated = self.mutation * distance / max(length(moved), 1e-20)
        mix(moved, mutated, way, 1 - bias, out=moved)
        wanted = abs(1 - bias) * distance / max(length(moved), 1e-20)
        mix(moved, wanted, game.clean, 1.0, out=moved)
        return np.clip(moved, 0, 1, out=moved)


def _earliest(waits: NDArray[np.float32], count: int, guess: float) -> NDArray[np.intp]:
    """Return where the ``count`` smallest values are, sought first among those below a guess."""
    few = np.flatnonzero(waits < guess)
    if len(few) > count:
        return few[np.argpartition(waits[few], count)[:count]]
    # There is no partition behind the last value: all of them are chosen.
    every = count >= len(waits)
    return np.arange(len(waits)) if every else np.argpartition(waits, count)[:count]
