"""Fixtures shared by all tests: where the real faces and real models are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def find_shared_data() -> Path | None:
    """Return the folder of real test material, or None where there is none."""
    named = os.environ.get("ONNXFR_DATA")
    place = Path(named) if named else Path(__file__).parents[2] / "shared" / "data"
    return place if place.is_dir() else None


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real faces and models (lfw_112, models/...)."""
    place = find_shared_data()
    if place is None:
        pytest.skip("real faces and models not found: set ONNXFR_DATA to their folder")
    return place
