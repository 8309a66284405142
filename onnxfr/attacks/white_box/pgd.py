"""PGD: BIM from random points of the ball, with restarts (Madry et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from onnxfr.attacks._iterative import IterativeGradient
from onnxfr.attacks.base import register


@register("pgd")
@dataclass(frozen=True)
class PGD(IterativeGradient):
    """FACESEC's forty steps; its step of 2/255 at eps 8/255 is a step_ratio of 10."""

    steps: int = 40
    step_ratio: float = 10.0
    random_start: bool = True

    paper: ClassVar[str] = "Madry et al., ICLR 2018 (arXiv:1706.06083)"
