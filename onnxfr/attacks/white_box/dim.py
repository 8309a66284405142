"""DIM: gradients through random shrinking and padding (Xie et al. 2019), RobFR's variant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from onnxfr.attacks._iterative import IterativeGradient, Seen, View
from onnxfr.attacks._settings import Chance, Share
from onnxfr.attacks.base import register
from onnxfr.attacks.white_box._pictures import affine
from onnxfr.probe import Probe
from onnxfr.rng import RowRng


@dataclass(frozen=True)
class RandomResize(View):
    """Shrink to a random size, put it at a random place on black; nearest neighbour as RobFR."""

    smallest: float
    probability: float
    copies: int = 1

    def draw(self, shape: tuple[int, int], probe: Probe, rng: RowRng, copy: int) -> Seen:
        """Draw a size and a place for each row."""
        sides = np.array([shape[1], shape[0]], dtype=np.float64)
        scale, skip, x, y = rng.uniform(0.0, 1.0, (4,)).astype(np.float64).T
        scale = self.smallest + (1 - self.smallest) * scale
        scale = np.where(skip < self.probability, scale, 1.0)
        small = np.maximum(np.floor(sides * scale[:, None] + 0.5), 1)
        offset = np.floor(np.stack([x, y], axis=1) * (sides - small + 1))
        stretch = sides / small
        shift = stretch - 2 * offset / small - 1
        zero = np.zeros(len(scale))
        matrices = np.stack(
            [
                np.stack([stretch[:, 0], zero, shift[:, 0]], axis=1),
                np.stack([zero, stretch[:, 1], shift[:, 1]], axis=1),
            ],
            axis=1,
        ).astype(np.float32)

        def see(pictures: torch.Tensor) -> torch.Tensor:
            return affine(pictures, matrices, mode="nearest")

        return see


@register("dim")
@dataclass(frozen=True)
class DIM(IterativeGradient):
    """MIM through ``RandomResize``; always applied, as in RobFR."""

    steps: int = 100
    momentum: float = 1.0
    smallest: Share = 0.9
    probability: Chance = 1.0

    paper: ClassVar[str] = "Xie et al., CVPR 2019 (arXiv:1803.06978)"

    def views(self) -> tuple[View, ...]:
        """Return the random resizing."""
        return (RandomResize(self.smallest, self.probability),)
