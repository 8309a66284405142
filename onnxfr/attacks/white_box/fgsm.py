"""FGSM: one step of the whole budget (Goodfellow et al. 2015)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from onnxfr.attacks._iterative import IterativeGradient
from onnxfr.attacks.base import register


@register("fgsm")
@dataclass(frozen=True)
class FGSM(IterativeGradient):
    """The single-step baseline."""

    steps: int = 1
    step_ratio: float = 1.0

    paper: ClassVar[str] = "Goodfellow et al., ICLR 2015 (arXiv:1412.6572)"
