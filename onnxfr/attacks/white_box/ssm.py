"""SSM: gradients of pictures whose spectrum is randomly reweighted (Long et al. 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.fft
import torch
from numpy.typing import NDArray

from onnxfr.attacks._iterative import IterativeGradient, Seen, View
from onnxfr.attacks._settings import NotNegative
from onnxfr.attacks.base import register
from onnxfr.probe import Probe
from onnxfr.rng import RowRng


@dataclass(frozen=True)
class Reweighted(View):
    """Noise is added, then every cosine coefficient is multiplied by a random weight."""

    copies: int
    spread: float
    noise: float

    def draw(self, shape: tuple[int, int], probe: Probe, rng: RowRng, copy: int) -> Seen:
        """Draw noise and weights for each row."""
        noise = rng.normal((3, *shape)) * np.float32(self.noise)
        weights = rng.uniform(1 - self.spread, 1 + self.spread, (3, *shape))
        bases = [scipy.fft.dct(np.eye(side), axis=0, norm="ortho") for side in shape]

        def see(pictures: torch.Tensor) -> torch.Tensor:
            def like(array: NDArray[np.floating]) -> torch.Tensor:
                return torch.as_tensor(array, dtype=pictures.dtype, device=pictures.device)

            down, across = (like(basis) for basis in bases)
            spectrum = down @ (pictures + like(noise)) @ across.T
            return down.T @ (spectrum * like(weights)) @ across

        return see


@register("ssm")
@dataclass(frozen=True)
class SSM(IterativeGradient):
    """MIM over ``samples`` spectra."""

    momentum: float = 1.0
    samples: int = 20
    spread: NotNegative = 0.5
    noise: NotNegative = 16 / 255

    paper: ClassVar[str] = "Long et al., ECCV 2022 (arXiv:2207.05382)"

    def views(self) -> tuple[View, ...]:
        """Return the reweighting."""
        return (Reweighted(self.samples, self.spread, self.noise),)
