"""QEBA: HopSkipJump whose probes stay in a subspace that gradients are likely to lie in (2020).

Three subspaces: small pictures enlarged, the low frequencies of the cosine transform, and the
principal directions of a surrogate's gradients, which come with the probe (``Probe.basis``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from onnxfr.attacks._settings import Share
from onnxfr.attacks.base import register
from onnxfr.attacks.decision._base import Game
from onnxfr.attacks.decision._directions import Cosine, Directions, Enlarged, Spanned
from onnxfr.attacks.decision.hopskipjump import HopSkipJump
from onnxfr.oracle import Oracle
from onnxfr.probe import Probe
from onnxfr.rng import RowRng
from onnxfr.types import Images, Norm

Space = Literal["spatial", "cosine", "surrogate"]


@register("qeba")
@dataclass(frozen=True)
class QEBA(HopSkipJump):
    """HopSkipJump in a subspace.

    Args:
        space: ``spatial`` (QEBA-S), ``cosine`` (QEBA-F) or ``surrogate`` (QEBA-I).
        side: height and width of the small pictures of ``spatial``.
        share: part of each axis of the spectrum that ``cosine`` fills.
    """

    space: Space = "spatial"
    side: int = 28
    share: Share = 0.25

    norms: ClassVar[tuple[Norm, ...]] = ("l2",)
    paper: ClassVar[str] = "Li et al., CVPR 2020 (arXiv:2005.14137)"

    def __post_init__(self) -> None:
        """Say what the chosen subspace needs."""
        super().__post_init__()
        if self.space == "surrogate":
            object.__setattr__(self, "needs", ("basis",))

    def directions(self, game: Game) -> Directions:
        """Return the subspace of the probes."""
        if self.space == "spatial":
            return Enlarged(game.clean.shape, self.side)
        if self.space == "cosine":
            return Cosine(game.clean.shape, self.share)
        assert game.basis is not None
        return Spanned(game.basis)


def surrogate_basis(
    surrogate: Oracle, probe: Probe, count: int = 64, *, noise: float = 0.05, seed: int = 0
) -> Images:
    """Return the principal directions of a surrogate's gradients around the probe's pictures.

    Args:
        surrogate: an oracle of the attacker's own model, which gives gradients.
        probe: its games, not necessarily those to be attacked.
        count: how many directions; at most as many gradients as that are taken, plus a few.
        noise: size of the noise on the pictures at which gradients are taken.
        seed: of that noise.
    """
    rounds = -(-(count + 8) // max(len(probe), 1))
    rng = RowRng(seed, probe.ids, "surrogate basis")
    slopes = []
    for _ in range(rounds):
        shaken = np.clip(probe.images + noise * rng.normal(probe.images.shape[1:]), 0, 1)
        slope = surrogate.gradient(surrogate.tensor(shaken))[1].flatten(1)
        slope = slope / slope.norm(dim=1, keepdim=True).clamp_min(1e-20)
        slopes.append(slope.cpu().numpy())
    principal = np.linalg.svd(np.concatenate(slopes), full_matrices=False)[2][:count]
    return principal.astype(np.float32).reshape(-1, *probe.images.shape[1:])
