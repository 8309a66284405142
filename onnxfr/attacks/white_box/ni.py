"""NI: momentum with Nesterov's look-ahead (Lin et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from onnxfr.attacks._iterative import IterativeGradient
from onnxfr.attacks.base import register


@register("ni")
@dataclass(frozen=True)
class NI(IterativeGradient):
    """The gradient is taken where momentum is about to lead."""

    steps: int = 100
    momentum: float = 1.0
    lookahead: bool = True

    paper: ClassVar[str] = "Lin et al., ICLR 2020 (arXiv:1908.06281)"
