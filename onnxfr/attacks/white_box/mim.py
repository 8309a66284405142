"""MIM: BIM with momentum (Dong et al. 2018).

Gradients are divided by their mean magnitude where the paper takes the sum: a constant factor that
neither the sign nor the normalised step can see.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from onnxfr.attacks._iterative import IterativeGradient
from onnxfr.attacks.base import register


@register("mim")
@dataclass(frozen=True)
class MIM(IterativeGradient):
    """BIM that remembers where it was going."""

    momentum: float = 1.0

    paper: ClassVar[str] = "Dong et al., CVPR 2018 (arXiv:1710.06081)"
