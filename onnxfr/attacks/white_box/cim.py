"""CIM: gradients with one random square cut out, RobFR's control for LGC (Yang et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from onnxfr.attacks._iterative import IterativeGradient, Seen, View
from onnxfr.attacks.base import register
from onnxfr.attacks.white_box._pictures import without_squares
from onnxfr.probe import Probe
from onnxfr.rng import RowRng


@dataclass(frozen=True)
class RandomCut(View):
    """A black square whose centre lies anywhere in the picture."""

    side: int
    copies: int = 1

    def draw(self, shape: tuple[int, int], probe: Probe, rng: RowRng, copy: int) -> Seen:
        """Draw a centre for each row."""
        centres = rng.uniform(0.0, 1.0, (1, 2)) * [shape[1], shape[0]]
        mask = without_squares(shape, centres, max(round(self.side * shape[0] / 112), 1))

        def see(pictures: torch.Tensor) -> torch.Tensor:
            return pictures * torch.as_tensor(mask, dtype=pictures.dtype, device=pictures.device)

        return see


@register("cim")
@dataclass(frozen=True)
class CIM(IterativeGradient):
    """MIM with a cut of ``side`` pixels at a height of 112."""

    steps: int = 100
    momentum: float = 1.0
    side: int = 10

    paper: ClassVar[str] = "Yang et al., RobFR, 2020 (arXiv:2007.04118)"

    def views(self) -> tuple[View, ...]:
        """Return the cut."""
        return (RandomCut(self.side),)
