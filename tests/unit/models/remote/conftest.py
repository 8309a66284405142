"""A model behind a toy service."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from onnxfr.models.remote.adapter import Adapter
from onnxfr.models.remote.model import RemoteModel


@pytest.fixture
def open_model(tmp_path: Path) -> Callable[..., RemoteModel]:
    def make(adapter: Adapter, budget: int | None = 50) -> RemoteModel:
        return RemoteModel(adapter, tmp_path / "j", budget=budget)

    return make
