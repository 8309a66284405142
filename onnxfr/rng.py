"""Randomness that belongs to an example, not to the order in which examples are computed.

One independent stream per row id: batch size, order, sharding, workers and resuming never change a
draw. The global NumPy and torch generators are never touched.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def stream(seed: int, *labels: object) -> np.random.Generator:
    """Return the generator that belongs to ``seed`` and a sequence of labels, on any machine."""
    text = "\x1f".join([str(int(seed)), *(str(label) for label in labels)])
    digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))


class RowRng:
    """One generator per row of a batch; every draw is stacked in row order."""

    def __init__(self, seed: int, row_ids: Sequence[str], purpose: str = "") -> None:
        self._seed, self._row_ids = seed, tuple(row_ids)
        self.streams = [stream(seed, purpose, row_id) for row_id in row_ids]

    def __len__(self) -> int:
        return len(self.streams)

    def take(self, rows: Sequence[int] | NDArray[np.intp]) -> RowRng:
        """Return a view on some rows that shares (and advances) their streams."""
        view = RowRng.__new__(RowRng)
        view._seed, view._row_ids = self._seed, tuple(self._row_ids[int(i)] for i in rows)
        view.streams = [self.streams[int(i)] for i in rows]
        return view

    def anew(self, purpose: str) -> RowRng:
        """Return fresh streams of the same seed and rows for another purpose."""
        return RowRng(self._seed, self._row_ids, purpose)

    def normal(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Standard normal values, ``(rows, *shape)``."""
        draws = [s.standard_normal(shape, dtype=np.float32) for s in self.streams]
        return self._stack(draws, shape)

    def uniform(self, low: float, high: float, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Uniform values in [low, high), ``(rows, *shape)``."""
        return self._stack(
            [(low + (high - low) * s.random(shape)).astype(np.float32) for s in self.streams], shape
        )

    def signs(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Rademacher values (-1 or 1), ``(rows, *shape)``."""
        draws = [s.integers(0, 2, shape).astype(np.float32) * 2 - 1 for s in self.streams]
        return self._stack(draws, shape)

    def integers(self, low: int, high: int, shape: tuple[int, ...] = ()) -> NDArray[np.int64]:
        """Integers in [low, high), ``(rows, *shape)``."""
        if not self.streams:
            return np.zeros((0, *shape), dtype=np.int64)
        return np.stack([np.asarray(s.integers(low, high, shape)) for s in self.streams])

    @staticmethod
    def _stack(draws: list[NDArray[np.float32]], shape: tuple[int, ...]) -> NDArray[np.float32]:
        return np.stack(draws) if draws else np.zeros((0, *shape), dtype=np.float32)
