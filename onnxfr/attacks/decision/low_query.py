"""Low-query: one batch of about a hundred pictures, all chosen before the first answer.

Rate limits and query detectors look for adaptive attacks; this one sends a fixed album and keeps
the closest picture that wins. After the idea of Park et al. 2025 (one non-adaptive batch of 100
faces), which recovers the victim's template from scores and needs a face generator; ours needs
neither: the album blends the clean picture with the reference, the probe's start (say a transfer
example) and the nearest faces of other people, as a whole, in the inner face only, and there only
in low frequencies, in equal steps of opacity.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product
from typing import ClassVar

import cv2
import numpy as np

from onnxfr.attacks._walks import CHUNK, Picture, Walk
from onnxfr.attacks.base import register
from onnxfr.attacks.decision._base import DecisionAttack, Game, candidates
from onnxfr.types import Norm


@register("low_query")
@dataclass(frozen=True)
class LowQuery(DecisionAttack):
    """A fixed album of blends.

    Args:
        queries: how many pictures to send; fewer where the cap is lower.
        faces: how many of the start candidates to blend with.
        blur: standard deviation of the low-pass filter, relative to the height.
    """

    queries: int = 100
    faces: int = 3
    blur: float = 0.03

    norms: ClassVar[tuple[Norm, ...]] = ("l2", "linf")
    paper: ClassVar[str] = "after Park et al., 2025 (arXiv:2507.12107)"

    def walk(self, game: Game) -> Walk[None]:
        """Send the album, a few pages at a time: whole photographs would fill the memory."""
        album = self.album(game)
        while pages := list(islice(album, CHUNK)):
            yield np.stack(pages)

    def album(self, game: Game) -> Iterator[Picture]:
        """Yield the pictures to send, the most opaque first; no answer decides about any."""
        count = min(self.queries, game.questions)
        others = list(islice(candidates(game), self.faces))
        changes = [form for face in others for form in self._forms(face - game.clean)]
        shades = -(-count // len(changes))
        opacities = np.linspace(1, 0, shades, endpoint=False, dtype=np.float32)
        for opacity, change in islice(product(opacities, changes), count):
            blend = game.clean + opacity * change
            yield np.clip(blend, 0, 1, out=blend)

    def _forms(self, change: Picture) -> tuple[Picture, Picture, Picture]:
        """Return a change as a whole, in the inner face, and smooth in the inner face."""
        height, width = change.shape[1:]
        y, x = np.ogrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j]
        inner = np.clip(4 * (1 - np.hypot(x / 0.75, y / 0.85)), 0, 1).astype(np.float32)
        sigma = self.blur * height
        smooth = np.stack([cv2.GaussianBlur(channel, (0, 0), sigma) for channel in change])
        return change, change * inner, smooth * inner
