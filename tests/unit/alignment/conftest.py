"""The detector and a few real photographs, opened once."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxfr.alignment.detector import Detector
from onnxfr.data.images import decode
from onnxfr.types import Pixels


@pytest.fixture(scope="session")
def detector(shared_data: Path) -> Detector:
    return Detector(shared_data / "models" / "detectors" / "yunet_n_dynamic.onnx")


@pytest.fixture(scope="session")
def photographs(shared_data: Path) -> list[Path]:
    """Twelve unaligned LFW pictures, spread over the folder."""
    return sorted((shared_data / "lfw_250_fold1").rglob("*.jpg"))[::70][:12]


@pytest.fixture(scope="session")
def portrait(photographs: list[Path]) -> Pixels:
    return decode(photographs[0].read_bytes(), photographs[0].name)
