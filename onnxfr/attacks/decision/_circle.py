"""The circle through the clean picture and a boundary point: every point on it is closer.

SurFree and CGBA move on it, in a plane of their choice; the angle is seen from the clean picture.
"""

from __future__ import annotations

import numpy as np

from onnxfr.attacks._walks import Picture
from onnxfr.attacks.decision._base import Game, length


class Circle:
    """The circle over the segment from the clean picture to ``point``; ``bulge`` gives it a plane.

    What depends on the point alone is worked out once, for all the planes it is tried in.
    """

    def __init__(self, game: Game, point: Picture) -> None:
        way = point - game.clean
        self.distance, self.shape = length(way), way.shape
        # Rows: along, aside, the clean picture. A point is one product with them.
        self.plane = np.empty((3, way.size), dtype=np.float32)
        along, aside, clean = self.plane
        np.multiply(way.ravel(), np.float32(1 / max(self.distance, 1e-20)), out=along)
        aside[:] = 0
        clean[:] = game.clean.ravel()

    def bulge(self, side: Picture) -> Circle:
        """Turn the circle into the plane of a direction, bulging to that side; return it."""
        along, aside, _ = self.plane
        np.multiply(along, np.float32(-np.vdot(side, along)), out=aside)
        aside += side.ravel()
        aside *= np.float32(1 / max(length(aside), 1e-20))
        return self

    def at(self, angle: float) -> Picture:
        """Return the point at an angle: 0 is the boundary point, a right angle the clean one."""
        reach = self.distance * np.cos(angle)
        shares = np.array([reach * np.cos(angle), reach * np.sin(angle), 1], dtype=np.float32)
        turned: Picture = shares @ self.plane
        return np.clip(turned, 0, 1, out=turned).reshape(self.shape)

    def at_share(self, share: float) -> Picture:
        """Return the point at a share of the right angle, counted from the clean picture."""
        return self.at((1 - share) * np.pi / 2)
