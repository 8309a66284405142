"""BIM: repeated steepest ascent with projection (Kurakin et al. 2017), RobFR's step size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from onnxfr.attacks._iterative import IterativeGradient
from onnxfr.attacks.base import register


@register("bim")
@dataclass(frozen=True)
class BIM(IterativeGradient):
    """Twenty steps of 1.5 eps / 20 from the clean picture."""

    paper: ClassVar[str] = "Kurakin et al., ICLR workshop 2017 (arXiv:1607.02533)"
