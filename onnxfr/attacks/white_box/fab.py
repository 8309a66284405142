"""FAB: steps to the linearised boundary, biased towards the clean picture (Croce, Hein 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch

from onnxfr.attacks._iterative import random_point
from onnxfr.attacks._settings import Chance, Share
from onnxfr.attacks.base import Attack, register
from onnxfr.attacks.white_box._boundary import onto_boundary
from onnxfr.oracle import Oracle
from onnxfr.probe import Probe
from onnxfr.rng import RowRng
from onnxfr.threat import Threat
from onnxfr.types import Images

_UNKNOWN_RADIUS = 8 / 255


@register("fab")
@dataclass(frozen=True)
class FAB(Attack):
    """Fast adaptive boundary attack.

    Args:
        steps: linearisations per run.
        restarts: further runs start at random within half the best distance.
        alpha: largest pull towards the clean picture.
        overshoot: how far beyond the boundary each step goes (eta).
        retreat: how much of the change is kept after a win (beta).
    """

    steps: int = 100
    restarts: int = 1
    alpha: Chance = 0.1
    overshoot: float = 1.05
    retreat: Share = 0.9

    seeks: ClassVar[Literal["any", "smallest"]] = "smallest"
    paper: ClassVar[str] = "Croce and Hein, ICML 2020 (arXiv:1907.02044)"

    def run(self, oracle: Oracle, probe: Probe, threat: Threat, rng: RowRng) -> Images:
        """Run and restart; the oracle keeps the closest wins."""
        clean = oracle.tensor(probe.images)
        for restart in range(self.restarts):
            x = clean.clone()
            if restart:
                reach = np.minimum(oracle.best_distance, 2 * _UNKNOWN_RADIUS) / 2
                x = random_point(clean, threat.within(reach), rng)
            self._approach(oracle, threat, clean, x)
        return oracle.best

    def _approach(
        self, oracle: Oracle, threat: Threat, clean: torch.Tensor, x: torch.Tensor
    ) -> None:
        for _ in range(self.steps):
            margin, slope = oracle.gradient(x)
            won = (margin > 0).reshape(-1, 1, 1, 1)
            slope = threat.restrict(slope)
            near = onto_boundary(x, x, margin, slope, threat)
            far = onto_boundary(clean, x, margin, slope, threat)
            step, whole = threat.distance(x, near), threat.distance(clean, far)
            share = (step / (step + whole).clamp_min(1e-12)).clamp_max(self.alpha)
            share = share.reshape(-1, 1, 1, 1)
            forward = x + self.overshoot * (near - x)
            backward = clean + self.overshoot * (far - clean)
            moved = ((1 - share) * forward + share * backward).clamp(0.0, 1.0)
            # A win is on record; the next look is from a little nearer.
            x = torch.where(won, clean + self.retreat * (x - clean), moved)
