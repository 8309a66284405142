"""Small pictures on disk, of which each has its own content."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

Draw = Callable[[str], Path]


@pytest.fixture
def draw(tmp_path: Path) -> Draw:
    """Return a function that writes a picture whose pixels follow from its name."""

    def write(name: str, size: tuple[int, int] = (12, 10)) -> Path:
        digest = hashlib.sha256(name.encode()).digest()
        seed = int.from_bytes(digest[:8], "big")
        pixels = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
        return path

    return write
