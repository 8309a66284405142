"""LGC: gradients with squares cut out at random facial landmarks (Yang et al. 2020).

The squares are the paper's 7 x 7; the released code's default is 3 x 3. The face contour is left
out: its points come first in the 68- and 106-point schemes, which are recognised by their count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from onnxfr.attacks._iterative import IterativeGradient, Seen, View
from onnxfr.attacks.base import register
from onnxfr.attacks.white_box._pictures import without_squares
from onnxfr.errors import AttackError
from onnxfr.probe import Probe
from onnxfr.rng import RowRng

_JAW_POINTS = {68: 17, 106: 33}


@dataclass(frozen=True)
class LandmarkCut(View):
    """Black squares around landmarks chosen at random, without replacement."""

    count: int
    side: int
    copies: int = 1

    def draw(self, shape: tuple[int, int], probe: Probe, rng: RowRng, copy: int) -> Seen:
        """Choose landmarks for each row."""
        if probe.landmarks is None:
            raise AttackError("lgc needs facial landmarks; add them to the probe")
        contour = _JAW_POINTS.get(probe.landmarks.shape[1], 0)
        points = probe.landmarks[:, contour:].astype(np.float64)
        order = np.argsort(rng.uniform(0.0, 1.0, points.shape[1:2]), axis=1)
        centres = np.stack(
            [self._inside(row[ranks], shape) for row, ranks in zip(points, order, strict=True)]
        )
        mask = without_squares(shape, centres, max(round(self.side * shape[0] / 112), 1))

        def see(pictures: torch.Tensor) -> torch.Tensor:
            return pictures * torch.as_tensor(mask, dtype=pictures.dtype, device=pictures.device)

        return see

    def _inside(self, points: NDArray[np.float64], shape: tuple[int, int]) -> NDArray[np.float64]:
        """Return the first points that lie in the picture; far away ones where there are none."""
        size = np.array([shape[1], shape[0]])
        inside = points[((points >= 0) & (points < size)).all(axis=1)][: self.count]
        missing = np.full((self.count - len(inside), 2), -1e6)
        return np.concatenate([inside, missing])


@register("lgc")
@dataclass(frozen=True)
class LGC(IterativeGradient):
    """MIM with ``count`` cuts of ``side`` pixels at a height of 112."""

    steps: int = 100
    momentum: float = 1.0
    count: int = 4
    side: int = 7

    paper: ClassVar[str] = "Yang et al., RobFR, 2020 (arXiv:2007.04118)"
    needs: ClassVar[tuple[str, ...]] = ("landmarks",)

    def views(self) -> tuple[View, ...]:
        """Return the cuts."""
        return (LandmarkCut(self.count, self.side),)
