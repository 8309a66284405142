"""A small real verifier, and the service around it without a socket."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "evaluators"))
sys.path.insert(0, str(Path(__file__).parent))

from toy_faces import make_model

from onnxfr.models.wrapper import OnnxModel, load_model


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> OnnxModel:
    return load_model(make_model(tmp_path_factory.mktemp("model") / "toy"), threads=1)
