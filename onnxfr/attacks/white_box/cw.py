"""C&W for verification: the closest win by Adam in tanh space (Carlini and Wagner 2017; RobFR).

Minimises the squared change plus ``c`` times the hinge of the margin. The weight is multiplied by
ten for rows that have not won and bisected for those that have, as in RobFR, but between the last
failing and the first winning weight instead of from 0. Every descent goes on from where the row
stands (its closest win, or the end of the last try) instead of from the clean picture, so that
pairs far from the boundary are reached at the same small learning rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from onnxfr.attacks._settings import NotNegative, OrNone
from onnxfr.attacks.base import Attack, register
from onnxfr.oracle import BudgetExhausted, Oracle
from onnxfr.probe import Probe
from onnxfr.rng import RowRng
from onnxfr.threat import Threat
from onnxfr.types import Images, Norm

_EDGE = 1 - 1e-6


@register("cw")
@dataclass(frozen=True)
class CW(Attack):
    """Carlini and Wagner's l2 attack on the verification margin.

    Args:
        steps: Adam steps for each weight.
        rate: Adam's learning rate, in tanh space.
        weight: the first weight of the hinge.
        growths: how often the weight may be multiplied by ten.
        bisections: rounds spent on the weight after that.
        confidence: the margin wished for, in cosine units.
    """

    steps: int = 100
    rate: float = 1e-3
    weight: float = 1.0
    growths: OrNone = 6
    bisections: OrNone = 10
    confidence: NotNegative = 1e-3

    norms: ClassVar[tuple[Norm, ...]] = ("l2",)
    seeks: ClassVar[Literal["any", "smallest"]] = "smallest"
    paper: ClassVar[str] = "Carlini and Wagner, S&P 2017 (arXiv:1608.04644)"

    def run(self, oracle: Oracle, probe: Probe, threat: Threat, rng: RowRng) -> Images:
        """Search the weight; the oracle keeps the closest wins."""
        rows = np.arange(len(probe))
        at = oracle.tensor(probe.images)
        weight = np.full(len(probe), self.weight)
        low = np.zeros(len(probe))
        high = np.full(len(probe), np.inf)
        for _ in range(self.growths + 1):
            open_rows = rows[~np.isfinite(high)]
            if not open_rows.size:
                break
            won = self._minimise(oracle, probe, threat, weight, open_rows, at)
            high[open_rows[won]] = weight[open_rows[won]]
            lost = open_rows[~won]
            low[lost], weight[lost] = weight[lost], weight[lost] * 10
        rows = rows[np.isfinite(high)]
        for _ in range(self.bisections if rows.size else 0):
            weight[rows] = (low[rows] + high[rows]) / 2
            at = oracle.tensor(oracle.best)
            won = self._minimise(oracle, probe, threat, weight, rows, at)
            high[rows[won]], low[rows[~won]] = weight[rows[won]], weight[rows[~won]]
        return oracle.best

    def _minimise(
        self,
        oracle: Oracle,
        probe: Probe,
        threat: Threat,
        weight: NDArray[np.float64],
        rows: NDArray[np.intp],
        at: torch.Tensor,
    ) -> NDArray[np.bool_]:
        """Move ``at`` by descent for some rows; return which of them won after the first step."""
        window, rules = oracle.part(rows), threat.take(rows)
        clean = oracle.tensor(probe.images[rows])
        factor = oracle.tensor(weight[rows]).reshape(-1, 1, 1, 1)
        where = torch.as_tensor(rows)
        w = torch.atanh((at[where] * 2 - 1) * _EDGE)
        optimiser = torch.optim.Adam([w], lr=self.rate)
        ever_won = torch.zeros(len(rows), dtype=torch.bool, device=clean.device)
        for turn in range(self.steps):
            curve = torch.tanh(w)
            x = clean + rules.restrict((curve + 1) / 2 - clean)
            try:
                margin, slope = window.gradient(x)
            except BudgetExhausted:  # of these rows; others may have gradients left
                break
            ever_won |= (margin > 0) & (turn > 0)
            hinge = (margin < self.confidence).to(x.dtype).reshape(-1, 1, 1, 1)
            pull = 2 * (x - clean) - factor * hinge * slope
            w.grad = rules.restrict(pull) * (1 - curve.square()) / 2
            optimiser.step()
        at[where] = x
        return ever_won.cpu().numpy()
