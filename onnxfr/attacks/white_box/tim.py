"""TIM: gradients smoothed by a Gaussian, as if over shifted pictures (Dong et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch.nn import functional

from onnxfr.attacks._iterative import Filter, IterativeGradient
from onnxfr.attacks.base import register
from onnxfr.errors import SpecError


@dataclass(frozen=True)
class Smooth:
    """A depthwise convolution with the normal density on [-3, 3]."""

    size: int

    def __call__(self, gradient: torch.Tensor) -> torch.Tensor:
        """Return the smoothed gradient."""
        density = np.exp(-(np.linspace(-3, 3, self.size) ** 2) / 2)
        line = torch.as_tensor(
            density / density.sum(), dtype=gradient.dtype, device=gradient.device
        ).expand(gradient.shape[1], 1, -1)
        groups, half = gradient.shape[1], self.size // 2
        rows = functional.conv2d(gradient, line[:, :, None, :], padding=(0, half), groups=groups)
        return functional.conv2d(rows, line[:, :, :, None], padding=(half, 0), groups=groups)


@register("tim")
@dataclass(frozen=True)
class TIM(IterativeGradient):
    """MIM on smoothed gradients; RobFR's kernel of 7 (the paper has 15)."""

    steps: int = 100
    momentum: float = 1.0
    size: int = 7

    paper: ClassVar[str] = "Dong et al., CVPR 2019 (arXiv:1904.02884)"

    def __post_init__(self) -> None:
        """Check the kernel."""
        super().__post_init__()
        if self.size < 1 or self.size % 2 == 0:
            raise SpecError(f"the kernel's size is odd, got {self.size}")

    def filters(self) -> tuple[Filter, ...]:
        """Return the smoothing."""
        return (Smooth(self.size),)
