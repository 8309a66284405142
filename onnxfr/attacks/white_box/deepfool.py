"""DeepFool on the verification margin: repeated steps onto the linearised boundary.

There are two classes only, so the nearest boundary is the margin's; each step ends a little beyond
it, and a row stops at its first win (Moosavi-Dezfooli et al. 2016). The first step is a grey level
where the clean gradient promises nothing, since the reference is nearly the same picture.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch

from onnxfr.attacks._settings import NotNegative
from onnxfr.attacks.base import Attack, register
from onnxfr.attacks.white_box._boundary import off_flat
from onnxfr.oracle import Oracle
from onnxfr.probe import Probe, to_array
from onnxfr.rng import RowRng
from onnxfr.threat import Threat
from onnxfr.types import Images


@register("deepfool")
@dataclass(frozen=True)
class DeepFool(Attack):
    """At most ``steps`` linearisations, the change stretched by ``overshoot``."""

    steps: int = 100
    overshoot: NotNegative = 0.02

    seeks: ClassVar[Literal["any", "smallest"]] = "smallest"
    paper: ClassVar[str] = "Moosavi-Dezfooli et al., CVPR 2016 (arXiv:1511.04599)"

    def run(self, oracle: Oracle, probe: Probe, threat: Threat, rng: RowRng) -> Images:
        """Step until every row has won."""
        clean = oracle.tensor(probe.images)
        change = torch.zeros_like(clean)
        x, rows = clean.clone(), np.arange(len(clean))
        for turn in range(self.steps):
            where = torch.as_tensor(rows)
            margin, slope = oracle.gradient(x[where], rows)
            going = np.flatnonzero(margin.cpu().numpy() <= 0)
            if not going.size:
                break
            rules, keep = threat.take(rows[going]), torch.as_tensor(going)
            rows, where = rows[going], torch.as_tensor(rows[going])
            slope = slope[keep]
            way = -margin[keep] / rules.slope(slope).clamp_min(1e-12)
            way = way.clamp_max(1.0) if turn else off_flat(way)
            change[where] += rules.steepest(slope) * way.reshape(-1, 1, 1, 1)
            x[where] = (clean[where] + (1 + self.overshoot) * change[where]).clamp(0.0, 1.0)
        return to_array(x)
