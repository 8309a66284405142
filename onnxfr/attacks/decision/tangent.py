"""Tangent attack: HopSkipJump that jumps to where a ray from the clean picture touches a half-ball.

The half-ball sits on the boundary point, on the winning side; its tangent point is the closest
winning point if the boundary is flat there. ``ratio`` 1 is the hemisphere (TA), a larger one the
semi-ellipsoid that is longer along the normal (G-TA; the authors' ratio is 1.5).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnxfr.attacks._walks import Picture
from onnxfr.attacks.base import register
from onnxfr.attacks.decision._base import Game, length, unit
from onnxfr.attacks.decision.hopskipjump import HALVINGS, HopSkipJump
from onnxfr.types import Norm


@register("tangent")
@dataclass(frozen=True)
class Tangent(HopSkipJump):
    """HopSkipJump with a jump to the tangent point.

    Args:
        ratio: of the radius along the normal to the radius along the boundary.
    """

    ratio: float = 1.0

    norms: ClassVar[tuple[Norm, ...]] = ("l2",)
    paper: ClassVar[str] = "Ma, Guo, Chen, Yong and Wang, NeurIPS 2021 (arXiv:2111.07492)"

    def jump(self, game: Game, point: Picture, normal: Picture, step: int) -> Iterator[Picture]:
        """Return tangent points of ever smaller half-balls."""
        way = game.clean - point
        reach = length(way) / np.sqrt(step)
        for k in range(HALVINGS):
            touch = tangent_point(way, normal, reach / 2**k, self.ratio)
            if touch is not None:
                yield np.clip(point + touch, 0, 1)


def tangent_point(way: Picture, normal: Picture, radius: float, ratio: float) -> Picture | None:
    """Return where a line from the end of ``way`` touches the half-ellipsoid at its beginning.

    Of the two tangent points in the plane of ``way`` and ``normal`` the one on the winning side;
    None where the clean picture lies within.
    """
    normal = unit(normal)
    height = float(np.vdot(way, normal))
    aside = way - np.float32(height) * normal
    across = length(aside)
    # In units of the two radii the ellipse is the unit circle.
    y, z = across * ratio / radius, height / radius
    square = y * y + z * z
    if square <= 1 + 1e-6:
        return None
    root = np.sqrt(square - 1)
    along = (y - root * z) / square * radius / ratio
    up = (z + root * y) / square * radius
    return np.float32(along / max(across, 1e-20)) * aside + np.float32(up) * normal
