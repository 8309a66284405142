"""The Caffe reader: against OpenCV's answers on a tiny net, and a real caffemodel alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import cv2
import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

from onnxfr.errors import OnnxfrError, UnreadableModel, UnsafeFile, UnsupportedModel
from onnxfr.exporters._caffe_messages import read_binary, read_text
from onnxfr.exporters._wire import fields
from onnxfr.exporters.caffe import export_caffe

GOLDEN = Path(__file__).parents[2] / "golden" / "exporters"
MODEL, TEXT = GOLDEN / "caffe" / "tiny.caffemodel", GOLDEN / "caffe" / "tiny.prototxt"


def run(model: onnx.ModelProto, images: NDArray[np.float32]) -> NDArray[np.float32]:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    answer: NDArray[np.float32] = session.run(None, {session.get_inputs()[0].name: images})[0]
    return answer


def read_faces(paths: list[Path]) -> NDArray[np.float32]:
    """Return RGB pictures from 0 to 255, NCHW."""
    pixels = [cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB) for path in paths]
    return np.stack(pixels).transpose(0, 3, 1, 2).astype(np.float32)


def unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def changed(folder: Path, old: str, new: str) -> Path:
    shutil.copy(MODEL, folder)
    text = TEXT.read_text()
    assert old in text
    (folder / TEXT.name).write_text(text.replace(old, new, 1))
    return folder / TEXT.name


@pytest.mark.parametrize("source", [MODEL, TEXT], ids=["alone", "with prototxt"])
def test_a_tiny_net_answers_as_opencv_does(source: Path) -> None:
    expected = np.array(json.loads((GOLDEN / "answers.json").read_text())["caffe"])
    count = np.arange(2 * 3 * 16 * 16)
    raw = ((count * count * 7 + count * 37) % 251).astype(np.float32).reshape(2, 3, 16, 16)
    made = export_caffe(source)
    answer = run(made.model, ((raw - 127.5) / 128).astype(np.float32))
    assert np.abs(unit(answer) - unit(expected)).max() < 1e-5
    assert [o.name for o in made.model.graph.output] == ["fc1"]


def test_a_real_caffemodel_tells_people_apart(shared_data: Path) -> None:
    made = export_caffe(shared_data / "models" / "caffe" / "imistyrain_mobilefacenet.caffemodel")
    people = [p for p in sorted((shared_data / "lfw_112").iterdir()) if len(list(p.iterdir())) > 1]
    paths = [path for person in people[:24] for path in sorted(person.iterdir())[:2]]
    faces = read_faces(paths)[:, ::-1, :, 8:104]
    rows = unit(run(made.model, np.ascontiguousarray((faces - 127.5) / 128, np.float32)))
    scores = rows @ rows.T
    same = np.array([scores[k, k + 1] for k in range(0, len(rows), 2)])
    other = np.array([scores[k, (k + 2) % len(rows)] for k in range(0, len(rows), 2)])
    assert np.median(same) > 0.45
    assert np.median(other) < 0.2
    assert np.mean(same > 0.3) - np.mean(other > 0.3) > 0.85


def test_training_layers_are_left_out_and_their_scaling_is_a_hint(tmp_path: Path) -> None:
    training = """
    layer { name: "d" type: "Data" top: "data" top: "label" include { phase: TRAIN }
      transform_param { crop_size: 16 mean_value: 127.5 scale: 0.0078125 } }
    layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc1" bottom: "label" top: "loss" }
    """
    header = 'input: "data" input_shape { dim: [1, 3, 16, 16] }'
    made = export_caffe(changed(tmp_path, header, training))
    assert made.model.graph.input[0].type.tensor_type.shape.dim[2].dim_value == 16
    assert made.preprocessing is not None
    assert made.preprocessing.color == "bgr"
    assert made.preprocessing.mean == pytest.approx((0.5, 0.5, 0.5))
    assert made.preprocessing.std == pytest.approx((128 / 255,) * 3)


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("kernel_size: 3 stride: 2", "kernel_size: 3 stride: 0", "absurd"),
        ("pad: 1 kernel_size: 3 stride: 2", "pad: 999999999 kernel_size: 3 stride: 2", "absurd"),
        ("group: 8", "group: 7", "does not fit"),
        ('type: "PReLU"', 'type: "Magic"', "no ONNX form"),
        ("16, 16", "16, 1600000000", "4096"),
        ("16, 16", "16, 10", "does not fit"),
        ('name: "dw"', 'name: "elsewhere"', "stored arrays"),
        ("stride: 2 }", "stride: 2 } }", "brace"),
    ],
)
def test_lying_nets_are_refused(old: str, new: str, error: str, tmp_path: Path) -> None:
    with pytest.raises(OnnxfrError, match=error):
        export_caffe(changed(tmp_path, old, new))


def test_nesting_is_bounded() -> None:
    with pytest.raises(UnsafeFile, match="deeper"):
        read_text("a { " * 100_000)
    with pytest.raises(UnreadableModel, match="ends inside"):
        read_text("layer { name: 'x'")


@pytest.mark.parametrize(
    "message",
    [b"\x0a\xff\xff\xff\xff\x7fabc", b"\xff" * 20, b"\x0b\x00", b"\x08", b"\x0d\x00"],
)
def test_lying_protobufs_are_refused(message: bytes) -> None:
    with pytest.raises(UnreadableModel):
        list(fields(message))


def test_a_blob_must_hold_what_its_shape_says(tmp_path: Path) -> None:
    layer = b"\x0a\x01c\x12\x0bConvolution" + b"\x1a\x04data" + b"\x22\x01c"
    shape = b"\x3a\x06\x0a\x04\xff\xff\xff\x7f"
    blob = shape + b"\x2a\x04\x00\x00\x80?"
    message = layer + b"\x3a" + bytes([len(blob)]) + blob
    (tmp_path / "x.caffemodel").write_bytes(b"\xa2\x06" + bytes([len(message)]) + message)
    assert read_binary((tmp_path / "x.caffemodel").read_bytes())["layer"]
    with pytest.raises(UnreadableModel, match="weights of the shape"):
        export_caffe(tmp_path / "x.caffemodel")


def test_a_prototxt_alone_is_half_a_model(tmp_path: Path) -> None:
    shutil.copy(TEXT, tmp_path)
    with pytest.raises(UnreadableModel, match="half a model"):
        export_caffe(tmp_path / TEXT.name)


def test_two_inputs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="expected one picture"):
        export_caffe(changed(tmp_path, 'input: "data"', 'input: "data" input: "other"'))
