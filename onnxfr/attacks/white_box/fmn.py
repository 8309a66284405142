"""FMN: ascent in a ball that shrinks on every win and grows on every loss (Pintor et al. 2021).

Steps are the norm's own steepest ones, in units of what the clean gradient promises, where the
authors take a fixed length of the plain gradient: that depends on picture size. Where the clean
gradient promises nothing, since the reference is nearly the same picture, the gradient one grey
level beside it does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch

from onnxfr.attacks._settings import Part
from onnxfr.attacks.base import Attack, register
from onnxfr.attacks.white_box._boundary import is_flat, off_flat
from onnxfr.attacks.white_box.ddn import first_length
from onnxfr.oracle import Oracle
from onnxfr.probe import Probe
from onnxfr.rng import RowRng
from onnxfr.threat import Threat
from onnxfr.types import Images


@register("fmn")
@dataclass(frozen=True)
class FMN(Attack):
    """Fast minimum norm.

    Args:
        steps: gradients per row.
        step: first step as a multiple of the expected distance; falls to a hundredth.
        gamma: first relative change of the ball; falls to ``last_gamma``.
        last_gamma: the last one.
    """

    steps: int = 100
    step: float = 1.0
    gamma: Part = 0.05
    last_gamma: Part = 0.001

    seeks: ClassVar[Literal["any", "smallest"]] = "smallest"
    paper: ClassVar[str] = "Pintor et al., NeurIPS 2021 (arXiv:2102.12827)"

    def run(self, oracle: Oracle, probe: Probe, threat: Threat, rng: RowRng) -> Images:
        """Follow the boundary; the oracle keeps the closest wins."""
        clean = oracle.tensor(probe.images)
        x = clean.clone()
        eps = first = clean.new_zeros(0)
        ever_won = torch.zeros(len(clean), dtype=torch.bool, device=clean.device)
        for turn in range(self.steps):
            margin, slope = oracle.gradient(x)
            fade = (1 + math.cos(math.pi * turn / self.steps)) / 2
            gamma = self.last_gamma + (self.gamma - self.last_gamma) * fade
            won, size = margin > 0, threat.distance(clean, x)
            if turn == 0:
                eps = first = first_length(margin, slope, threat)
            ever_won |= won
            promised = size + (-margin / threat.slope(slope).clamp_min(1e-12)).clamp(0.0, 0.25)
            if turn == 1:
                first = torch.where(is_flat(first), promised, first)
            grown = torch.where(ever_won, eps * (1 + gamma), promised)
            eps = torch.where(won, torch.minimum(eps, size) * (1 - gamma), grown)
            unit = first if turn else off_flat(first)
            rate = (self.step * unit * (0.01 + 0.99 * fade)).reshape(-1, 1, 1, 1)
            ball = threat.within(eps.clamp(0.0, 1.0).cpu().numpy().astype(np.float64))
            x = ball.project(clean, x + rate * threat.steepest(slope))
        oracle.decide(x)
        return oracle.best
