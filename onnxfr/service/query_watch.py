"""Notices attacks by what they cannot hide: many questions that are almost the same picture.

After Chen, Carlini, Wagner 2020, "Stateful Detection of Black-Box Adversarial Attacks": the mean
distance of a query to its k nearest among the client's recent ones falls below a limit when
somebody walks along a decision boundary. Deviations: the distance is between small grey versions of
the aligned face (or embeddings) instead of a trained encoder's, and a picture asked again byte for
byte is ignored, for retries are honest.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from onnxfr.errors import SpecError
from onnxfr.types import Pixels

_SIDE = 16

Action = Literal["flag", "block"]
Feature = Literal["pixels", "embedding"]

LIMITS: dict[Feature, float] = {"pixels": 0.02, "embedding": 0.2}
"""Below these mean distances a query counts as one of a series; docs/service.md has the rates."""


@dataclass(frozen=True)
class WatchSettings:
    """What is watched and what follows.

    Args:
        action: ``flag`` writes a warning to the log, ``block`` also refuses the client.
        feature: what distances are taken between.
        neighbours: how many near queries make a series.
        memory: recent queries kept per client.
        distance: mean distance below which a series is an attack; None takes ``LIMITS``.
        block_seconds: how long a client is refused.
    """

    action: Action = "flag"
    feature: Feature = "pixels"
    neighbours: int = 20
    memory: int = 1000
    distance: float | None = None
    block_seconds: float = 3600.0

    def __post_init__(self) -> None:
        if not 1 <= self.neighbours < self.memory:
            raise SpecError(
                f"a watch needs 1 <= neighbours < memory; got {self.neighbours}, {self.memory}"
            )
        if not 0 < self.limit < math.inf:
            raise SpecError(
                f"a watch needs a distance above 0, or it sees nothing; got {self.distance}"
            )

    @property
    def limit(self) -> float:
        """The mean distance that separates a series from single questions."""
        return LIMITS[self.feature] if self.distance is None else self.distance


class _History:
    def __init__(self, memory: int) -> None:
        self.features: NDArray[np.float32] | None = None
        self.seen: OrderedDict[bytes, None] = OrderedDict()
        self.count, self.blocked_until, self.alarms = 0, 0.0, 0
        self.memory = memory


class QueryWatch:
    """Keeps every client's recent queries and says when they look like an attack."""

    def __init__(self, settings: WatchSettings, clock: Callable[[], float] = time.time) -> None:
        self.settings, self._clock = settings, clock
        self._clients: dict[str, _History] = {}

    def blocked(self, client: str) -> float:
        """Return for how many seconds a client is still refused."""
        history = self._clients.get(client)
        return 0.0 if history is None else max(0.0, history.blocked_until - self._clock())

    def alarms(self, client: str) -> int:
        """Return how often this client has raised an alarm."""
        history = self._clients.get(client)
        return 0 if history is None else history.alarms

    def see(self, client: str, digest: bytes, feature: NDArray[np.float32]) -> float | None:
        """Remember a query; return its mean distance if that raises an alarm."""
        history = self._clients.setdefault(client, _History(self.settings.memory))
        if not np.isfinite(feature).all():
            return None
        if digest in history.seen:
            history.seen.move_to_end(digest)
            return None
        history.seen[digest] = None
        if len(history.seen) > history.memory:
            history.seen.popitem(last=False)
        distance = self._nearest(history, feature)
        if history.features is None:
            history.features = np.zeros((history.memory, feature.size), dtype=np.float32)
        history.features[history.count % history.memory] = feature
        history.count += 1
        if distance is None or distance >= self.settings.limit:
            return None
        # As in the paper: an alarm empties the memory, or every further query would raise one.
        history.count, history.alarms = 0, history.alarms + 1
        if self.settings.action == "block":
            history.blocked_until = self._clock() + self.settings.block_seconds
        return distance

    def _nearest(self, history: _History, feature: NDArray[np.float32]) -> float | None:
        kept = min(history.count, history.memory)
        k = self.settings.neighbours
        if history.features is None or kept < k:
            return None
        apart = np.sqrt(((history.features[:kept] - feature) ** 2).sum(1))
        return float(np.partition(apart, k - 1)[:k].mean())


def pixel_feature(crop: Pixels) -> NDArray[np.float32]:
    """Return a small grey version whose Euclidean distances are root mean squares in [0, 1]."""
    grey = cv2.cvtColor(np.ascontiguousarray(crop), cv2.COLOR_RGB2GRAY)
    small = cv2.resize(grey, (_SIDE, _SIDE), interpolation=cv2.INTER_AREA).astype(np.float32)
    flat: NDArray[np.float32] = small.ravel() / np.float32(255 * _SIDE)
    return flat
