"""DFANet: features dropped at random behind every convolution of the surrogate (Zhong, Deng 2020).

The dropout rate is ours to choose: the number the authors used is not stated in the text at hand.
Behind every one of some fifty convolutions a tenth is too much: such a surrogate teaches nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from onnxfr.attacks._iterative import IterativeGradient
from onnxfr.attacks._settings import Range
from onnxfr.attacks.base import register
from onnxfr.rng import RowRng


@register("dfanet")
@dataclass(frozen=True)
class DFANet(IterativeGradient):
    """MIM on a surrogate that changes at every step."""

    steps: int = 100
    momentum: float = 1.0
    rate: Annotated[float, Range(0.0, 1.0, True, False)] = 0.01

    paper: ClassVar[str] = "Zhong and Deng, TIFS 2020 (arXiv:2004.05790)"

    def hook(self, rng: RowRng) -> Callable[[int, torch.Tensor, NDArray[np.intp]], torch.Tensor]:
        """Return dropout with one random stream per row."""
        # One byte in 256 survives even the highest rate: what drops everything has no gradient.
        level = min(round(self.rate * 256), 255)

        def drop(at: int, features: torch.Tensor, rows: NDArray[np.intp]) -> torch.Tensor:
            shape = tuple(features.shape[1:])
            # Bytes, because a float for every feature would cost more than the network.
            kept = np.stack(
                [
                    np.frombuffer(rng.streams[int(row)].bytes(int(np.prod(shape))), np.uint8)
                    for row in rows
                ]
            )
            mask = torch.from_numpy(kept >= level).reshape(len(rows), *shape)
            return features * mask.to(features.device) / (1 - level / 256)

        return drop
