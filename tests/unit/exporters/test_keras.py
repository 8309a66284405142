"""The Keras reader: against the answers of Keras 2 and 3 on a tiny net, and hostile files."""

from __future__ import annotations

import gzip
import io
import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

from onnxfr.errors import OnnxfrError, UnreadableModel, UnsafeFile, UnsupportedModel
from onnxfr.exporters._keras_weights import snake_case
from onnxfr.exporters.base import detect
from onnxfr.exporters.keras import export_keras

GOLDEN = Path(__file__).parents[2] / "golden" / "exporters"
FOLDER = GOLDEN / "keras"
ARCHIVE = FOLDER / "tiny.keras"


def run(model: onnx.ModelProto, images: NDArray[np.float32]) -> NDArray[np.float32]:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    answer: NDArray[np.float32] = session.run(None, {session.get_inputs()[0].name: images})[0]
    return answer


def pictures() -> NDArray[np.float32]:
    count = np.arange(2 * 3 * 16 * 16)
    return ((count * count * 7 + count * 37) % 251).astype(np.float32).reshape(2, 3, 16, 16)


def unpacked(name: str, folder: Path) -> Path:
    path = folder / "model.bin"
    path.write_bytes(gzip.decompress((FOLDER / f"{name}.gz").read_bytes()))
    return path


@pytest.mark.parametrize(
    ("file", "answer"),
    [("tiny.keras", "keras3"), ("tiny_keras3.h5", "keras3"), ("tiny_keras2.h5", "keras2")],
)
def test_a_tiny_net_answers_as_keras_does(file: str, answer: str, tmp_path: Path) -> None:
    expected = np.array(json.loads((GOLDEN / "answers.json").read_text())[answer])
    path = ARCHIVE if file == "tiny.keras" else unpacked(file, tmp_path)
    found, place = detect(path)
    assert found.name == "keras"
    made = found.export(place)
    assert np.abs(run(made.model, pictures()) - expected).max() < 1e-6
    assert any("code was not run" in note for note in made.notes)


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("external_link", UnsafeFile),
        ("soft_link", UnsafeFile),
        ("outside_storage", UnsafeFile),
        ("chunked", UnsupportedModel),
    ],
)
def test_weights_that_lie_elsewhere_are_refused(
    kind: str, error: type[Exception], tmp_path: Path
) -> None:
    with pytest.raises(error):
        export_keras(unpacked(f"{kind}.h5", tmp_path))


def changed(folder: Path, change: Callable[[Any], None], extra: str = "") -> Path:
    path = folder / "changed.keras"
    with zipfile.ZipFile(ARCHIVE) as whole, zipfile.ZipFile(path, "w") as made:
        config = json.loads(whole.read("config.json"))
        change(config)
        made.writestr("config.json", json.dumps(config))
        made.writestr("model.weights.h5", whole.read("model.weights.h5"))
        if extra:
            made.writestr(extra, "x")
    return path


def layer(config: Any, kind: str) -> Any:
    return next(item for item in config["config"]["layers"] if item["class_name"] == kind)


def _code(config: Any) -> None:
    layer(config, "Lambda")["config"]["arguments"] = {}


def _more_arguments(config: Any) -> None:
    layer(config, "Lambda")["config"]["arguments"] = {"scale": 1.0, "command": "id"}


def _text_scale(config: Any) -> None:
    layer(config, "Lambda")["config"]["arguments"] = {"scale": "__import__('os')"}


def _own_class(config: Any) -> None:
    layer(config, "PReLU").update({"class_name": "Evil", "module": "os"})


def _first(config: Any) -> None:
    layer(config, "Conv2D")["config"]["data_format"] = "channels_first"


def _circle(config: Any) -> None:
    layer(config, "Rescaling")["inbound_nodes"] = layer(config, "UnitNormalization")[
        "inbound_nodes"
    ]


def _nested(config: Any) -> None:
    inner = layer(config, "Sequential")
    leaf = inner["config"]["layers"]
    for _ in range(40):
        leaf = [{"class_name": "Sequential", "config": {"name": "m", "layers": leaf}}]
    inner["config"]["layers"] = leaf


@pytest.mark.parametrize(
    ("change", "kind", "error"),
    [
        (_code, UnsafeFile, "never run"),
        (_more_arguments, UnsafeFile, "never run"),
        (_text_scale, UnsafeFile, "never run"),
        (_own_class, UnsupportedModel, "Evil"),
        (_first, UnsupportedModel, "channels first"),
        (_circle, UnreadableModel, "never computed"),
        (_nested, OnnxfrError, "deeply|no weights"),
    ],
)
def test_lying_models_are_refused(
    change: Callable[[Any], None], kind: type[Exception], error: str, tmp_path: Path
) -> None:
    with pytest.raises(kind, match=error):
        export_keras(changed(tmp_path, change))


@pytest.mark.parametrize("name", ["../../escaped", "/tmp/escaped", "a/../../escaped"])
def test_an_archive_with_paths_out_of_it_is_refused(name: str, tmp_path: Path) -> None:
    path = changed(tmp_path, lambda config: None, extra=name)
    before = set(tmp_path.parent.rglob("*"))
    with pytest.raises(UnsafeFile, match="out of it"):
        export_keras(path)
    assert set(tmp_path.parent.rglob("*")) == before


def test_a_member_that_unpacks_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.keras"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("config.json", "{}")
        made.writestr("model.weights.h5", bytes(20_000_000))
    with pytest.raises(UnsafeFile, match="claims"):
        export_keras(path)


def test_weights_alone_are_told_apart(tmp_path: Path) -> None:
    with zipfile.ZipFile(ARCHIVE) as archive:
        path = tmp_path / "weights.h5"
        path.write_bytes(archive.read("model.weights.h5"))
    with pytest.raises(UnsupportedModel, match="weights alone"):
        export_keras(path)


def test_damaged_hdf5_gives_one_typed_error(tmp_path: Path) -> None:
    path = unpacked("tiny_keras2.h5", tmp_path)
    whole = path.read_bytes()
    rng = np.random.Generator(np.random.Philox(key=11))
    refused = 0
    for k in range(80):
        data = bytearray(whole)
        place = int(rng.integers(len(data)))
        if k % 4 == 0:
            del data[place:]
        elif k % 4 == 1:
            data[place : place + 8] = struct.pack("<Q", int(rng.integers(2**63)))
        else:
            for _ in range(40):
                data[int(rng.integers(len(data)))] = int(rng.integers(256))
        path.write_bytes(bytes(data))
        try:
            export_keras(path)
        except OnnxfrError:
            refused += 1
    assert refused > 20


def test_an_archive_cut_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cut.keras"
    path.write_bytes(ARCHIVE.read_bytes()[:-30])
    with pytest.raises(UnreadableModel):
        export_keras(path)
    with pytest.raises(zipfile.BadZipFile):
        zipfile.ZipFile(io.BytesIO(path.read_bytes()))


def test_class_names_are_written_as_keras_writes_them() -> None:
    assert snake_case("PReLU") == "p_re_lu"
    assert snake_case("Conv2D") == "conv2d"
    assert snake_case("BatchNormalization") == "batch_normalization"
    assert snake_case("GlobalAveragePooling2D") == "global_average_pooling2d"
