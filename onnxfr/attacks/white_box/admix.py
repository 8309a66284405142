"""Admix: gradients of the picture mixed with other people's (Wang et al. 2021).

Every copy draws a face of its own; in the paper the scales of one mixture share it. As many copies
so see more faces.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from onnxfr.attacks._iterative import IterativeGradient, Seen, View
from onnxfr.attacks._settings import NotNegative
from onnxfr.attacks.base import register
from onnxfr.errors import AttackError
from onnxfr.probe import Probe
from onnxfr.rng import RowRng


@dataclass(frozen=True)
class Mixed(View):
    """Add a share of another face from the pool, then darken; copies run over both."""

    copies: int
    scales: int
    share: float

    def draw(self, shape: tuple[int, int], probe: Probe, rng: RowRng, copy: int) -> Seen:
        """Draw another face for each row."""
        pool = probe.pool
        if pool is None or not len(pool) or pool.shape[2:] != shape:
            raise AttackError(f"admix needs a pool of other faces of size {shape} in the probe")
        others = np.ascontiguousarray(pool[_drawn(probe, len(pool), rng)])

        def see(pictures: torch.Tensor) -> torch.Tensor:
            other = torch.as_tensor(others, dtype=pictures.dtype, device=pictures.device)
            return (pictures + self.share * other) / float(2 ** (copy % self.scales))

        return see


def _drawn(probe: Probe, faces: int, rng: RowRng) -> NDArray[np.intp]:
    """Return a face of the pool for each row, none of the row's own people."""
    if probe.strangers is None:
        return rng.integers(0, faces)
    known = [np.flatnonzero(row) for row in probe.strangers]
    for name, others in zip(probe.ids, known, strict=True):
        if not others.size:
            raise AttackError(
                f"admix needs other people's faces, and the pool has none for {name}; attack data "
                "with more people"
            )
    drawn = [
        mine[each.integers(0, len(mine))] for mine, each in zip(known, rng.streams, strict=True)
    ]
    return np.array(drawn, dtype=np.intp)


@register("admix")
@dataclass(frozen=True)
class Admix(IterativeGradient):
    """MIM over three other faces and five scales."""

    momentum: float = 1.0
    others: int = 3
    scales: int = 5
    share: NotNegative = 0.2

    paper: ClassVar[str] = "Wang et al., ICCV 2021 (arXiv:2102.00436)"
    needs: ClassVar[tuple[str, ...]] = ("pool",)

    def views(self) -> tuple[View, ...]:
        """Return the mixing."""
        return (Mixed(self.others * self.scales, self.scales, self.share),)
