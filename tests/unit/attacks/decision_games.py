"""What tests of yes-or-no attacks share: a flat world and a loop that answers a walk."""

from __future__ import annotations

import numpy as np

from onnxfr.attacks._walks import Walk
from onnxfr.attacks.decision._base import Game
from onnxfr.types import Norm

SHAPE = (3, 16, 16)


def answered(walk: Walk, wins: object) -> tuple[object, int]:
    """Play a walk against a rule; return its result and how many pictures it asked about."""
    count, answers = 0, None
    while True:
        try:
            pictures = next(walk) if answers is None else walk.send(answers)
        except StopIteration as end:
            return end.value, count
        count += len(pictures)
        answers = np.array([wins(picture) for picture in pictures])  # type: ignore[operator]


def flat_game(norm: Norm = "l2", **more: object) -> Game:
    clean = np.full(SHAPE, 0.5, np.float32)
    return Game(clean, norm, np.random.default_rng(0), **more)  # type: ignore[arg-type]
