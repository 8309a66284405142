"""SI: gradients averaged over ever darker copies (Lin et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from onnxfr.attacks._iterative import IterativeGradient, Seen, View
from onnxfr.attacks.base import register
from onnxfr.probe import Probe
from onnxfr.rng import RowRng


@dataclass(frozen=True)
class Darker(View):
    """Copy i shows the picture divided by 2 to the power of i."""

    copies: int = 5

    def draw(self, shape: tuple[int, int], probe: Probe, rng: RowRng, copy: int) -> Seen:
        """Return the division of one copy."""

        def see(pictures: torch.Tensor) -> torch.Tensor:
            return pictures / float(2**copy)

        return see


@register("si")
@dataclass(frozen=True)
class SI(IterativeGradient):
    """MIM over five scales."""

    steps: int = 100
    momentum: float = 1.0
    scales: int = 5

    paper: ClassVar[str] = "Lin et al., ICLR 2020 (arXiv:1908.06281)"

    def views(self) -> tuple[View, ...]:
        """Return the scales."""
        return (Darker(self.scales),)
