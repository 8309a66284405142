"""A bounded reader for binary weight files: no size is believed that the file cannot hold."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from onnxfr.errors import UnreadableModel, UnsafeFile

MAX_RANK = 8


class BinaryReader:
    """Walks through ``content`` from front to back; ``name`` is for messages."""

    def __init__(self, content: bytes, name: str) -> None:
        self._content = memoryview(content)
        self._name = name
        self.position = 0

    @property
    def left(self) -> int:
        """Bytes not read yet."""
        return len(self._content) - self.position

    def take(self, count: int) -> memoryview:
        """Return the next ``count`` bytes."""
        if count < 0 or count > self.left:
            raise UnreadableModel(
                f"{self._name} is truncated or damaged: {count} bytes are promised at "
                f"{self.position}, {self.left} are there"
            )
        taken = self._content[self.position : self.position + count]
        self.position += count
        return taken

    def skip_to_multiple(self, of: int) -> None:
        """Skip padding."""
        self.take(-self.position % of)

    def number(self, code: str) -> Any:
        """Return one little-endian number of a ``struct`` code."""
        return struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}")))[0]

    def array(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Return the next values as an array of ``shape``, a copy that owns its memory."""
        count = checked_count(shape, self._name)
        kind = np.dtype(dtype)
        return np.frombuffer(self.take(count * kind.itemsize), dtype=kind).reshape(shape).copy()


def checked_count(shape: tuple[int, ...], name: str) -> int:
    """Return how many values ``shape`` has, or refuse it."""
    if len(shape) > MAX_RANK or any(side < 0 for side in shape):
        raise UnsafeFile(f"{name} declares an impossible array of shape {shape}")
    return math.prod(shape)
