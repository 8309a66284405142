"""DDN: direction from the gradient, length from the last answer (Rony et al. 2019).

The first length is what the clean gradient promises instead of a fixed 1, so that the attack does
not depend on picture size or model. In the end a few decisions find the boundary on the way to the
closest win, which lies within the last change of length.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from onnxfr.attacks._settings import Part
from onnxfr.attacks.base import Attack, register
from onnxfr.attacks.white_box._boundary import pull_in
from onnxfr.oracle import Oracle
from onnxfr.probe import Probe
from onnxfr.rng import RowRng
from onnxfr.threat import Threat
from onnxfr.types import Images, Norm


@register("ddn")
@dataclass(frozen=True)
class DDN(Attack):
    """Decoupled direction and norm; ``gamma`` is the relative change of length per step."""

    steps: int = 100
    gamma: Part = 0.05

    norms: ClassVar[tuple[Norm, ...]] = ("l2",)
    seeks: ClassVar[Literal["any", "smallest"]] = "smallest"
    paper: ClassVar[str] = "Rony et al., CVPR 2019 (arXiv:1811.09600)"

    def run(self, oracle: Oracle, probe: Probe, threat: Threat, rng: RowRng) -> Images:
        """Alternate between both sides of the boundary; the oracle keeps the closest wins."""
        clean = oracle.tensor(probe.images)
        change = torch.zeros_like(clean)
        length = first = clean.new_zeros(0)
        for turn in range(self.steps):
            margin, slope = oracle.gradient((clean + change).clamp(0.0, 1.0))
            if turn == 0:
                length = first = first_length(margin, slope, threat)
            rate = 0.01 + 0.99 * (1 + math.cos(math.pi * turn / self.steps)) / 2
            change = change + threat.steepest(slope) * (rate * first).reshape(-1, 1, 1, 1)
            if turn:
                length = length * torch.where(margin > 0, 1 - self.gamma, 1 + self.gamma)
            size = threat.distance(torch.zeros_like(change), change).clamp_min(1e-12)
            change = change * (length / size).reshape(-1, 1, 1, 1)
            change = (clean + change).clamp(0.0, 1.0) - clean
        oracle.decide(clean + change)
        pull_in(oracle, clean, self.gamma)
        return oracle.best


def first_length(margin: torch.Tensor, slope: torch.Tensor, threat: Threat) -> torch.Tensor:
    """Return how far the boundary lies if the margin were linear, within reason."""
    return (-margin / threat.slope(slope).clamp_min(1e-12)).clamp(1e-4, 0.25)
