"""Recognition by content, the way from a source to an admitted folder, and the command."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from onnxfr.cli.export import export
from onnxfr.errors import AmbiguousPreprocessing, OnnxfrError, SpecError, UnknownName
from onnxfr.exporters.admitting import as_text, export_model
from onnxfr.exporters.base import EXPORTERS, Options, detect
from onnxfr.models.card import read_card
from onnxfr.models.preprocessing import Preprocessing, parse_preprocessing

GOLDEN = Path(__file__).parents[2] / "golden" / "exporters"
EXPECTED = {
    "caffe/imistyrain_mobilefacenet.caffemodel": "caffe",
    "mxnet/mobilefacenet_y1-symbol.json": "mxnet",
    "mxnet/mobilefacenet_y1-0000.params": "mxnet",
    "ncnn/honghu_mobilefacenet.param": "ncnn",
    "ncnn/honghu_mobilefacenet.bin": "ncnn",
    "onnx/mobilefacenet_foamliu.onnx": "onnx",
    "onnx/edgeface_xxs_dequant.onnx": "onnx",
    "tfjs/mobileface.json": "tfjs",
    "torch/mobilefacenet_foamliu.pt": "pytorch",
    "torch/xiaoccer_mobilefacenet_068.ckpt": "pytorch",
    "torch/edgeface_xxs_q.pt": "pytorch",
}


@pytest.mark.parametrize(("file", "framework"), EXPECTED.items())
def test_real_files_tell_their_framework(file: str, framework: str, shared_data: Path) -> None:
    found, place = detect(shared_data / "models" / file)
    assert (found.name, place.name) == (framework, Path(file).name)


def test_nothing_known_is_an_error_that_lists_what_is(tmp_path: Path) -> None:
    (tmp_path / "x.onnx").write_bytes(b"not a model at all")
    with pytest.raises(OnnxfrError, match=r"dlib: .*--from"):
        detect(tmp_path / "x.onnx")
    with pytest.raises(OnnxfrError, match="found none"):
        detect(tmp_path / "missing")
    with pytest.raises(UnknownName, match="did you mean mxnet"):
        EXPORTERS.get("mxnett")


def test_a_folder_of_two_frameworks_is_ambiguous(tmp_path: Path) -> None:
    for name in ("ncnn", "caffe"):
        for file in (GOLDEN / name).iterdir():
            shutil.copy(file, tmp_path)
    with pytest.raises(SpecError, match="caffe or ncnn"):
        detect(tmp_path)


@pytest.mark.parametrize(
    "preprocessing",
    [
        Preprocessing(color="bgr", scaling="pm1-128"),
        Preprocessing(color="rgb", scaling="custom", mean=(0.1, 0.2, 1 / 3), std=(0.5, 0.5, 0.25)),
    ],
)
def test_a_hint_survives_its_notation(preprocessing: Preprocessing) -> None:
    assert parse_preprocessing(as_text(preprocessing)) == preprocessing


def test_an_export_names_its_origin_on_the_card(tmp_path: Path) -> None:
    options = Options(input_size=(16, 16))
    target = tmp_path / "m"
    made = export_model(GOLDEN / "mxnet", target, options=options, output="fc1_output", name="tiny")
    card = read_card(tmp_path / "m" / "card.toml")
    assert card == made.admission.card
    assert (card.framework, card.name, made.origin) == ("mxnet", "tiny", "source")
    assert card.source.file in ("tiny-symbol.json", "tiny-0000.params")
    assert len(card.source.sha256) == 64
    assert (card.preprocessing.color, card.preprocessing.scaling) == ("rgb", "0-255")
    assert any("held against" in note for note in card.notes)


def test_a_source_that_tells_no_preprocessing_asks_for_it(tmp_path: Path) -> None:
    with pytest.raises(AmbiguousPreprocessing, match="--data"):
        export_model(GOLDEN / "caffe", tmp_path / "m", output="fc1")


def _command(*words: str) -> typer.testing.Result:  # type: ignore[name-defined]
    app = typer.Typer()
    app.command()(export)
    return CliRunner().invoke(app, list(words))


def test_the_command_writes_model_card_and_certificate(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    words = ("--preprocess", "bgr,pm1-128", "--name", "tiny", "--arch", "tiny_net")
    result = _command(
        str(GOLDEN / "caffe" / "tiny.caffemodel"),
        "-o",
        str(folder),
        "--output",
        "fc1",
        "--json",
        *words,
    )
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert {p.name for p in folder.iterdir()} == {"model.onnx", "card.toml", "certificate.json"}
    assert answer["framework"] == "caffe"
    assert answer["architecture"] == "tiny_net"
    assert answer["input_size"] == [16, 16]
    assert answer["preprocessing"]["decided"] == "stated"
    assert answer["status"] in ("green", "yellow")


@pytest.mark.parametrize("size", ["16", "16x", "4x4", "16x99999", "-1x16"])
def test_an_impossible_size_is_refused(size: str, tmp_path: Path) -> None:
    result = _command(str(GOLDEN / "mxnet"), "-o", str(tmp_path / "m"), f"--size={size}")
    assert isinstance(result.exception, SpecError)
