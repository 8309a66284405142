"""SimBA: one direction of an orthonormal basis at a time, forwards or else backwards (Guo 2019).

Deviations: pictures are kept within the budget; the paper lets the change grow with the steps.
Before a verifier that takes 8-bit files a step is at least a grey level wide (root mean square of a
wave, or the one pixel): on large pictures the usual length is spread so thin that it rounds away.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from onnxfr.attacks._settings import Share
from onnxfr.attacks._walks import Picture, Walk
from onnxfr.attacks.base import register
from onnxfr.attacks.decision._directions import cosine_basis
from onnxfr.attacks.score._base import ScoreAttack, ScoreGame


@register("simba")
@dataclass(frozen=True)
class SimBA(ScoreAttack):
    """Tries each direction once, in random order, and begins anew when all were tried.

    Args:
        steps: most directions tried.
        basis: ``dct`` (cosine waves) or ``pixel``.
        share: part of each axis of the spectrum that ``dct`` uses, the lowest frequencies.
        length: Euclidean length of a step.
    """

    steps: int = 20_000
    basis: Literal["dct", "pixel"] = "dct"
    share: Share = 0.25
    length: float = 0.2

    paper: ClassVar[str] = "Guo et al., ICML 2019 (arXiv:1905.07121)"

    def walk(self, game: ScoreGame) -> Walk[None]:
        """Go forwards where that helps, else backwards where that helps."""
        x, best = game.clean, float((yield game.clean[None])[0])
        colours, height, width = self._extent(game)
        length = self._visible(game)
        order: list[int] = []
        for _ in range(self.steps):
            if not order:
                order = game.random.permutation(colours * height * width).tolist()
            place = divmod(order.pop(), height * width)
            for sign in (1, -1):
                tried = game.project(self._moved(game, x, place, sign * length))
                margin = float((yield tried[None])[0])
                if margin > best:
                    x, best = tried, margin
                    break

    def _visible(self, game: ScoreGame) -> float:
        """Return the length of a step that survives rounding."""
        values = 1 if self.basis == "pixel" else game.clean[0].size
        return max(self.length, game.grain * math.sqrt(values))

    def _extent(self, game: ScoreGame) -> tuple[int, int, int]:
        colours, height, width = game.clean.shape
        if self.basis == "pixel":
            return colours, height, width
        return colours, max(1, round(height * self.share)), max(1, round(width * self.share))

    def _moved(self, game: ScoreGame, x: Picture, place: tuple[int, int], length: float) -> Picture:
        """Return a picture moved along one direction of the basis: a place in a colour."""
        _, rows, columns = self._extent(game)
        colour, (row, column) = place[0], divmod(place[1], columns)
        moved = x.copy()
        if self.basis == "pixel":
            moved[colour, row, column] += length
        else:
            tall, wide = (
                cosine_basis(*side) for side in zip(x.shape[1:], (rows, columns), strict=True)
            )
            moved[colour] += np.outer(np.float32(length) * tall[:, row], wide[:, column])
        return moved
