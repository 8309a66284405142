"""VMI: momentum tuned by the gradient's variance in the neighbourhood (Wang and He 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from onnxfr.attacks._iterative import IterativeGradient
from onnxfr.attacks.base import register


@register("vmi")
@dataclass(frozen=True)
class VMI(IterativeGradient):
    """Twenty neighbours within 1.5 eps correct every step; with ``ni`` it is the paper's VNI."""

    momentum: float = 1.0
    neighbours: int = 20

    paper: ClassVar[str] = "Wang and He, CVPR 2021 (arXiv:2103.15571)"
