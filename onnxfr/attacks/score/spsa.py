"""SPSA: the estimate of NES with probes of signs instead of Gaussians (Uesato et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnxfr.attacks.base import register
from onnxfr.attacks.score._base import ScoreGame
from onnxfr.attacks.score.nes import NES
from onnxfr.types import Images


@register("spsa")
@dataclass(frozen=True)
class SPSA(NES):
    """Random signs in every cell of a grid, or in every pixel if ``side`` is 0."""

    paper: ClassVar[str] = "Uesato et al., ICML 2018 (arXiv:1802.05666)"

    def probes(self, game: ScoreGame, count: int) -> Images:
        """Draw signs."""
        drawn = super().probes(game, count)
        return np.copysign(np.float32(1), drawn, out=drawn)
