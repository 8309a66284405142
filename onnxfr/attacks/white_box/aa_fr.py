"""AA-FR: the parameter-free worst case for verification, after AutoAttack (Croce and Hein 2020).

APGD on the cosine from a random start, APGD on the margin from the clean picture (the two losses
climb alike, so it is the start that sets them apart), FAB on the margin, then the score-based
Square where gradients may lie; each is run only on pairs still unbeaten, with the random draws it
would have on its own, so that no pair that one of them wins by itself is left. A version never
changes: another choice of attacks or settings gets another number.

There is no last stage that asks for decisions only: Square is told the margin whose sign a decision
is, so it asks strictly more of the same verifier, and it needs no gradient that could lie. Such a
stage would add questions by the thousand; where it is wanted it is run, and reported, by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from onnxfr.attacks.base import ATTACKS, Attack, register
from onnxfr.attacks.composition import make_attack
from onnxfr.oracle import BudgetExhausted, Oracle
from onnxfr.probe import Probe
from onnxfr.rng import RowRng
from onnxfr.threat import Threat
from onnxfr.types import Images

STAGES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("apgd", {"loss": "cosine", "stop_on_win": True}),
    ("apgd", {"loss": "margin", "random_start": False}),
    ("fab", {}),
    ("square", {"steps": 5000}),
)


@register("aa_fr")
@dataclass(frozen=True)
class AAFR(Attack):
    """Worst case of four attacks; it has no settings on purpose."""

    version: ClassVar[str] = "aa-fr-1"
    paper: ClassVar[str] = "Croce and Hein, ICML 2020 (arXiv:2003.01690), for verification"

    def run(self, oracle: Oracle, probe: Probe, threat: Threat, rng: RowRng) -> Images:
        """Run the stages one after another on what is left."""
        images = probe.images.copy()
        for name, settings in STAGES:
            rows = np.flatnonzero(~np.isfinite(oracle.best_distance))
            if not rows.size:
                break
            if name not in ATTACKS:
                continue
            window = oracle.part(rows)
            stage = make_attack(name, settings)
            draws = rng.take(rows).anew(stage.label)
            try:
                made = stage.run(window, probe.take(rows), threat.take(rows), draws)
            except BudgetExhausted:
                made = window.best
            won = np.isfinite(window.best_distance)
            images[rows] = np.where(won[:, None, None, None], window.best, made)
        return images
