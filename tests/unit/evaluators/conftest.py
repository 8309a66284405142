"""A small real model and small real data, so that everything runs end to end in a second."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from toy_faces import make_faces, make_model, make_run


@pytest.fixture(scope="session")
def toy_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model") / "toy")


@pytest.fixture(scope="session")
def other_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model") / "other", seed=1)


@pytest.fixture(scope="session")
def toy_faces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_faces(tmp_path_factory.mktemp("faces") / "people")


@pytest.fixture(scope="session")
def toy_run(tmp_path_factory: pytest.TempPathFactory, toy_model: Path, toy_faces: Path) -> Path:
    """The folder of a finished run."""
    folder = tmp_path_factory.mktemp("runs") / "toy"
    return make_run(folder, toy_model, f"folder:{toy_faces}", folder.parent / "cache")


@pytest.fixture(scope="session")
def other_run(tmp_path_factory: pytest.TempPathFactory, other_model: Path, toy_faces: Path) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "other"
    return make_run(folder, other_model, f"folder:{toy_faces}", folder.parent / "cache")
