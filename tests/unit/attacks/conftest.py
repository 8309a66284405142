"""Makes the small verifiers in ``attack_games`` importable, and one tiny network for all tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from attack_games import tiny_model

from onnxfr.models.wrapper import OnnxModel


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> OnnxModel:
    return tiny_model(tmp_path_factory.getbasetemp())
