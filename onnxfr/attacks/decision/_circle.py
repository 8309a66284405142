"""The circle through the clean picture and a boundary point: every point on it is closer.

SurFree and CGBA move on it, in a plane of their choice; the angle is seen from the clean picture.
"""

from __future__ import annotations

import numpy as np

from onnxfr.attacks._walks import Picture
from onnxfr.attacks.decision._base import Game, length, unit


class Circle:
    """The circle over the segment from the clean picture to ``point``, bulging to ``side``."""

    def __init__(self, game: Game, point: Picture, side: Picture) -> None:
        self.clean, self.distance = game.clean, length(point - game.clean)
        self.along = unit(point - game.clean)
        self.side = unit(side - np.float32(np.vdot(side, self.along)) * self.along)

    def at(self, angle: float) -> Picture:
        """Return the point at an angle: 0 is the boundary point, a right angle the clean one."""
        reach = self.distance * np.cos(angle)
        turned = np.float32(reach * np.cos(angle)) * self.along
        turned += np.float32(reach * np.sin(angle)) * self.side
        turned += self.clean
        return np.clip(turned, 0, 1, out=turned)

    def at_share(self, share: float) -> Picture:
        """Return the point at a share of the right angle, counted from the clean picture."""
        return self.at((1 - share) * np.pi / 2)
