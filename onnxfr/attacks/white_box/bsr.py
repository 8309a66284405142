"""BSR: gradients of pictures cut into blocks that are shuffled and turned (Wang et al. 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from onnxfr.attacks._iterative import IterativeGradient, Seen, View
from onnxfr.attacks._settings import NotNegative
from onnxfr.attacks.base import register
from onnxfr.attacks.white_box._pictures import affine, cuts, rotation
from onnxfr.probe import Probe
from onnxfr.rng import RowRng


@dataclass(frozen=True)
class Shuffled(View):
    """Strips in one direction are turned and shuffled, then the blocks of each in the other."""

    copies: int
    blocks: int
    angle: float

    def draw(self, shape: tuple[int, int], probe: Probe, rng: RowRng, copy: int) -> Seen:
        """Draw cuts, orders and angles for each row."""
        n = self.blocks
        draws = rng.uniform(0.0, 1.0, (n + 1, 3, n)).astype(np.float64)

        def see(pictures: torch.Tensor) -> torch.Tensor:
            rows = [
                self._one(picture[None], draw)
                for picture, draw in zip(pictures, draws, strict=True)
            ]
            return torch.cat(rows)

        return see

    def _one(self, picture: torch.Tensor, draws: NDArray[np.float64]) -> torch.Tensor:
        # An angle of the blocks, which are not turned: what orders pieces must not choose the axis.
        first = 2 + int(draws[1, 1, 0] < 0.5)
        second = 5 - first
        strips = self._shuffle(picture, draws[0], first)
        angles = (draws[0, 1] * 2 - 1) * np.deg2rad(self.angle)
        done = []
        for k, strip in enumerate(strips):
            turn = rotation(angles[k : k + 1], strip.shape[2], strip.shape[3])
            blocks = self._shuffle(affine(strip, turn), draws[k + 1], second)
            done.append(torch.cat(blocks, dim=second))
        return torch.cat(done, dim=first)

    def _shuffle(
        self,
        picture: torch.Tensor,
        draws: NDArray[np.float64],
        axis: int,
    ) -> list[torch.Tensor]:
        lengths = cuts(picture.shape[axis], self.blocks, draws[0] + 1e-6)
        pieces = torch.split(picture, lengths, dim=axis)
        return [pieces[int(k)] for k in np.argsort(draws[2])]


@register("bsr")
@dataclass(frozen=True)
class BSR(IterativeGradient):
    """MIM over ``samples`` shuffles of 3 x 3 blocks, turned by up to 24 degrees."""

    momentum: float = 1.0
    samples: int = 20
    blocks: int = 3
    angle: NotNegative = 24.0

    paper: ClassVar[str] = "Wang et al., CVPR 2024 (arXiv:2308.10299)"

    def views(self) -> tuple[View, ...]:
        """Return the shuffling."""
        return (Shuffled(self.samples, self.blocks, self.angle),)
