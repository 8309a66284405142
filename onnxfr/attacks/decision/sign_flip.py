"""Sign-Flip: shrink the linf box, flip the signs of random blocks, keep what still wins (2020).

The authors shrink by a constant 0.004 and flip a share of the values that follows the rate of
wins; here the shrinking, relative to the radius, follows its own rate of wins as well, and the same
box is asked about once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnxfr.attacks._settings import Part, Share
from onnxfr.attacks._walks import Picture, Walk
from onnxfr.attacks.base import register
from onnxfr.attacks.decision._base import (
    DecisionAttack,
    Game,
    find_boundary,
    wins,
)
from onnxfr.attacks.decision._directions import tile
from onnxfr.types import Norm

_SHRINK_RANGE = (0.002, 0.1)
_FLIPPED_RANGE = (0.0005, 0.2)


@register("sign_flip")
@dataclass(frozen=True)
class SignFlip(DecisionAttack):
    """Random sign flips in a shrinking box.

    Args:
        steps: most rounds of one shrinking and one flipping.
        side: blocks along each axis in which signs flip together.
        shrink: first share by which the radius shrinks.
        flipped: first share of the blocks that are flipped.
    """

    steps: int = 20_000
    side: int = 28
    shrink: Part = 0.02
    flipped: Share = 0.01

    norms: ClassVar[tuple[Norm, ...]] = ("linf",)
    paper: ClassVar[str] = "Chen, Zhang, Hu and Wu, ECCV 2020"

    def walk(self, game: Game) -> Walk[None]:
        """Shrink, flip, and follow the rates of both."""
        point = yield from find_boundary(game, precision=0.01)
        if point is None:
            return
        shrink, flipped, refused = self.shrink, self.flipped, False
        for _ in range(self.steps):
            if not refused or shrink > _SHRINK_RANGE[0]:
                candidate = game.towards(point, 1 - shrink)
                refused = not (yield from wins(candidate))
                point = point if refused else candidate
                shrink = float(np.clip(shrink * (0.93 if refused else 1.2), *_SHRINK_RANGE))
            candidate = (point - game.clean) * self._signs(game, flipped)
            candidate += game.clean
            np.clip(candidate, 0, 1, out=candidate)
            won = yield from wins(candidate)
            point, refused = (candidate, False) if won else (point, refused)
            flipped = float(np.clip(flipped * (1.2 if won else 0.93), *_FLIPPED_RANGE))

    def _signs(self, game: Game, share: float) -> Picture:
        """Return -1 in the blocks chosen at random and 1 elsewhere."""
        shape = (len(game.clean), self.side, self.side)
        chosen = game.random.random(shape, dtype=np.float32) < share
        # The point itself was answered already.
        chosen[tuple(game.random.integers(shape))] |= not chosen.any()
        return tile(np.where(chosen, np.float32(-1), np.float32(1)), game.clean.shape)
