"""SIA: every block of the picture goes through a change of its own (Wang et al. 2023).

Eight of the published code's ten changes: blocks are neither resized nor cut in their spectrum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from onnxfr.attacks._iterative import IterativeGradient, Seen, View
from onnxfr.attacks.base import register
from onnxfr.attacks.white_box._pictures import cuts
from onnxfr.probe import Probe
from onnxfr.rng import RowRng

_NOISE = 16 / 255
_DROPPED = 0.1

Change = Callable[[torch.Tensor, float, torch.Tensor], torch.Tensor]
"""``(block, a draw from [0, 1), a plane of draws of the block's size) -> block``."""

_CHANGES: tuple[Change, ...] = (
    lambda block, draw, plane: block.roll(int(draw * block.shape[2]), dims=2),
    lambda block, draw, plane: block.roll(int(draw * block.shape[3]), dims=3),
    lambda block, draw, plane: block.flip(2),
    lambda block, draw, plane: block.flip(3),
    lambda block, draw, plane: block.rot90(2, dims=(2, 3)),
    lambda block, draw, plane: block * draw,
    lambda block, draw, plane: (block + (plane * 2 - 1) * _NOISE).clamp(0, 1),
    lambda block, draw, plane: block * (plane > _DROPPED),
)


@dataclass(frozen=True)
class PerBlock(View):
    """Random cuts, and one of eight changes for each block between them."""

    copies: int
    blocks: int

    def draw(self, shape: tuple[int, int], probe: Probe, rng: RowRng, copy: int) -> Seen:
        """Draw cuts and changes for each row."""
        n = self.blocks
        edges = rng.uniform(0.0, 1.0, (2, n)) + np.float32(1e-6)
        chosen = rng.integers(0, len(_CHANGES), (n, n))
        amounts = rng.uniform(0.0, 1.0, (n, n))
        planes = rng.uniform(0.0, 1.0, (3, *shape))

        def see(pictures: torch.Tensor) -> torch.Tensor:
            noise = torch.as_tensor(planes, dtype=pictures.dtype, device=pictures.device)
            done = []
            for k in range(len(pictures)):
                heights, widths = (cuts(shape[i], n, edges[k, i]) for i in (0, 1))
                parts = zip(
                    torch.split(pictures[k : k + 1], heights, 2),
                    torch.split(noise[k : k + 1], heights, 2),
                    chosen[k],
                    amounts[k],
                    strict=True,
                )
                rows = [_across(*part, widths=widths) for part in parts]
                done.append(torch.cat(rows, dim=2))
            return torch.cat(done)

        return see


def _across(
    strip: torch.Tensor,
    plane: torch.Tensor,
    chosen: NDArray[np.int64],
    amounts: NDArray[np.float32],
    widths: list[int],
) -> torch.Tensor:
    blocks = zip(
        torch.split(strip, widths, 3), torch.split(plane, widths, 3), chosen, amounts, strict=True
    )
    return torch.cat(
        [_CHANGES[int(kind)](block, float(amount), draws) for block, draws, kind, amount in blocks],
        dim=3,
    )


@register("sia")
@dataclass(frozen=True)
class SIA(IterativeGradient):
    """MIM over ``samples`` pictures of 3 x 3 changed blocks."""

    momentum: float = 1.0
    samples: int = 20
    blocks: int = 3

    paper: ClassVar[str] = "Wang et al., ICCV 2023 (arXiv:2309.14700)"

    def views(self) -> tuple[View, ...]:
        """Return the changes."""
        return (PerBlock(self.samples, self.blocks),)
