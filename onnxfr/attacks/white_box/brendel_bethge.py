"""Brendel-Bethge: along the boundary to its point nearest to the clean picture (2019).

Each step solves the authors' local problem, closer to the clean picture on the linearised boundary
within a trust region and the pixel range, by one line search along the gradient instead of their
dual solver. The start is the probe's, or found by BIM with growing budgets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch

from onnxfr.attacks._settings import OrNone, Part
from onnxfr.attacks.base import Attack, register
from onnxfr.attacks.white_box.bim import BIM
from onnxfr.oracle import Oracle
from onnxfr.probe import Probe
from onnxfr.rng import RowRng
from onnxfr.threat import Threat
from onnxfr.types import Images

_BUDGETS = (*(4 * 2**k / 255 for k in range(6)), 1.0)
"""Of the search for a start: whoever may change every pixel at will finds one."""
_HALVINGS = 30


@register("brendel_bethge")
@dataclass(frozen=True)
class BrendelBethge(Attack):
    """Boundary following with gradients.

    Args:
        steps: gradients spent on the boundary.
        trust: first step as a share of the distance; falls to a hundredth of it.
        bisections: halvings between the clean picture and the start.
    """

    steps: int = 100
    trust: Part = 0.2
    bisections: OrNone = 10

    seeks: ClassVar[Literal["any", "smallest"]] = "smallest"
    paper: ClassVar[str] = "Brendel et al., NeurIPS 2019 (arXiv:1907.01003)"

    def run(self, oracle: Oracle, probe: Probe, threat: Threat, rng: RowRng) -> Images:
        """Start, bisect, follow; the oracle keeps the closest wins."""
        _find_starts(oracle, probe, threat, rng)
        rows = np.flatnonzero(np.isfinite(oracle.best_distance))
        if rows.size:
            self._follow(oracle.part(rows), probe.take(rows), threat.take(rows))
        return oracle.best

    def _follow(self, oracle: Oracle, probe: Probe, threat: Threat) -> None:
        clean = oracle.tensor(probe.images)
        x = self._bisect(oracle, clean)
        for turn in range(self.steps):
            margin, slope = oracle.gradient(x)
            step = self.trust * 0.01 ** (turn / self.steps)
            x = _closer(clean, x, margin, slope, step, threat)
        oracle.decide(x)

    def _bisect(self, oracle: Oracle, clean: torch.Tensor) -> torch.Tensor:
        end = oracle.tensor(oracle.best)
        low = clean.new_zeros(len(clean), 1, 1, 1)
        high = torch.ones_like(low)
        for _ in range(self.bisections):
            middle = (low + high) / 2
            won = torch.as_tensor(oracle.decide(clean + middle * (end - clean)))
            wide = won.to(clean.device).reshape(-1, 1, 1, 1)
            low, high = torch.where(wide, low, middle), torch.where(wide, middle, high)
        return clean + high * (end - clean)


def _find_starts(oracle: Oracle, probe: Probe, threat: Threat, rng: RowRng) -> None:
    if probe.starts is not None:
        oracle.decide(probe.starts)
    for eps in _BUDGETS:
        rows = np.flatnonzero(~np.isfinite(oracle.best_distance))
        if not rows.size:
            return
        some = oracle.part(rows), probe.take(rows), threat.take(rows).within(eps), rng.take(rows)
        oracle.decide(BIM(stop_on_win=True).run(*some), rows)


def _closer(
    clean: torch.Tensor,
    x: torch.Tensor,
    margin: torch.Tensor,
    slope: torch.Tensor,
    step: float,
    threat: Threat,
) -> torch.Tensor:
    """Return the linearised boundary's point near ``x`` and, for rows that win, nearer to clean."""
    slope = threat.restrict(slope)
    inward = torch.where(margin > 0, 1 - step, 1.0).reshape(-1, 1, 1, 1)
    change = x - clean
    low, high = torch.zeros_like(x), torch.ones_like(x)
    if threat.norm == "linf":
        reach = threat.distance(clean, x).reshape(-1, 1, 1, 1) * inward
        # A losing row may leave the ball a little, or it could never come back to the boundary.
        reach = torch.where((margin > 0).reshape(-1, 1, 1, 1), reach, reach * (1 + step))
        low, high = (clean - reach).clamp_min(0.0), (clean + reach).clamp_max(1.0)
        start = torch.minimum(torch.maximum(x, low), high)
    else:
        start = clean + change * inward
    needed = -margin + (slope * (x - start)).flatten(1).sum(1) + 1e-6
    unit = (
        threat.steepest(slope)
        if threat.norm == "l2"
        else slope / slope.abs().flatten(1).mean(1).clamp_min(1e-30).reshape(-1, 1, 1, 1)
    )
    least, most = torch.zeros_like(margin), torch.ones_like(margin)
    for _ in range(_HALVINGS):
        middle = (least + most) / 2
        moved = torch.minimum(torch.maximum(start + unit * middle.reshape(-1, 1, 1, 1), low), high)
        reached = (slope * (moved - start)).flatten(1).sum(1) >= needed
        least, most = torch.where(reached, least, middle), torch.where(reached, middle, most)
    return torch.minimum(torch.maximum(start + unit * most.reshape(-1, 1, 1, 1), low), high)
