"""The 6,000 LFW pairs through a real model: the number its card quotes must come out again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from onnxfr.cli.verify import verify
from onnxfr.models.admission import admit

app = typer.Typer()
app.command()(verify)


@pytest.fixture
def model(shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ONNXFR_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "mobilefacenet"
    vendor = shared_data / "models" / "onnx" / "mobilefacenet_y1_from_mxnet.onnx"
    admit(vendor, folder, preprocess="rgb,0-255")
    return folder


@pytest.mark.slow
def test_lfw_accuracy_is_reproduced(model: Path, shared_data: Path, tmp_path: Path) -> None:
    data = f"lfw:{shared_data / 'lfw_112'}"
    words = [str(model), "--data", data, "--json", "-o", str(tmp_path / "run")]
    answer = CliRunner().invoke(app, words, catch_exceptions=False)
    assert answer.exit_code == 0
    found = json.loads(answer.stdout)
    assert found["pairs"] == 6000
    assert found["rejected"] == 0
    assert found["protocol"] == "kfold10"
    assert found["accuracy"] == pytest.approx(0.9918, abs=0.0015)
    assert found["threshold"] == pytest.approx(0.275, abs=0.01)
    assert found["tar_at_fmr"]["1e-3"] == pytest.approx(0.981, abs=0.003)
    assert found["tar_at_fmr"]["1e-4"] is None
    low, high = found["interval"]
    assert low < found["accuracy"] < high
    again = CliRunner().invoke(app, [*words, "--protocol", "oracle"], catch_exceptions=False)
    assert json.loads(again.stdout)["accuracy"] >= found["accuracy"]
