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

    steps: int = 20_000

    paper: ClassVar[str] = "Al-Dujaili and O'Reilly, ICLR 2020 (arXiv:1902.08894)"

    def walk(self, game: ScoreGame) -> Walk[None]:
        """Flip piece after piece; begin anew with the whole when single values are done."""
        low, high = (end.ravel() for end in game.box)
        x, ends = high, low + high
        size, at, best = x.size, 0, -np.inf
        for step in range(self.steps):
            tried = x.copy()
            if step:
                here = slice(at, at + size)
                np.subtract(ends[here], tried[here], out=tried[here])
                at += size
            margin = float((yield tried.reshape(1, *game.clean.shape))[0])
            if margin > best:
                best, x = margin, tried
            if at >= x.size:
                at, size = 0, (size + 1) // 2 if size > 1 else x.size
