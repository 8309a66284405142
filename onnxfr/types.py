"""The vocabulary of every layer: what an image batch is, what an attacker wants and may ask."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Images = NDArray[np.float32]
"""``(N, 3, H, W)`` float32, RGB, values in [0, 1]."""

Embeddings = NDArray[np.float32]
"""``(N, D)`` float32 with unit rows; similarity is the dot product."""

Pixels = NDArray[np.uint8]
"""One picture as stored: ``(H, W, 3)`` uint8, RGB."""

Norm = Literal["linf", "l2"]
"""``l2`` is always the normalised one: ``||a||_2 / sqrt(d)``, d the values of one image."""


class Goal(StrEnum):
    """What the attacker wants of the verifier."""

    DODGE = "dodge"
    IMPERSONATE = "impersonate"


class Access(IntEnum):
    """What the attacker may ask; stronger access includes weaker."""

    DECISION = 1
    SCORE = 2
    GRADIENT = 3
