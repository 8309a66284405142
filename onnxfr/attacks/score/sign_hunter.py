"""SignHunter: the gradient's signs by flipping ever smaller pieces (Al-Dujaili, O'Reilly 2020).

A start with all signs up, then halves, quarters, eighths: a flip that raises the margin is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnxfr.attacks._walks import Walk
from onnxfr.attacks.base import register
from onnxfr.attacks.score._base import ScoreAttack, ScoreGame


@register("sign_hunter")
@dataclass(frozen=True)
class SignHunter(ScoreAttack):
    """Flips pieces of the picture read in the order of its bytes, coarse to fine.

    Args:
        steps: most flips tried.
    """

    steps: int = 10_000

    paper: ClassVar[str] = "Al-Dujaili and O'Reilly, ICLR 2020 (arXiv:1902.08894)"

    def walk(self, game: ScoreGame) -> Walk[None]:
        """Flip piece after piece; begin anew with the whole when single values are done."""
        signs = np.ones(game.clean.size, dtype=np.float32)
        size, at, best = signs.size, 0, -np.inf
        for step in range(self.steps):
            tried = signs.copy()
            if step:
                tried[at : at + size] *= -1
                at += size
            change = np.float32(game.eps) * tried.reshape(game.clean.shape)
            margin = float((yield game.project(game.clean + change)[None])[0])
            if margin > best:
                best, signs = margin, tried
            if at >= signs.size:
                at, size = 0, (size + 1) // 2 if size > 1 else signs.size
