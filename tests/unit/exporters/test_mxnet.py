"""The MXNet reader: against torch on a tiny net, against an ONNX copy on a real one."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import cv2
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import torch.nn.functional as f
from numpy.typing import NDArray

from onnxfr.errors import SpecError, UnreadableModel, UnsupportedModel
from onnxfr.exporters._graph_writer import GraphWriter
from onnxfr.exporters._mxnet_layer import Layer
from onnxfr.exporters._mxnet_operators import OPERATORS
from onnxfr.exporters._mxnet_params import read_params
from onnxfr.exporters.mxnet import export_mxnet, read_symbol

GOLDEN = Path(__file__).parents[2] / "golden" / "exporters" / "mxnet"
SYMBOL, PARAMS = GOLDEN / "tiny-symbol.json", GOLDEN / "tiny-0000.params"


def pictures() -> NDArray[np.float32]:
    count = np.arange(2 * 3 * 16 * 16)
    return ((count * count * 7 + count * 37) % 251).astype(np.float32).reshape(2, 3, 16, 16)


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


def test_a_tiny_net_computes_what_its_operators_say() -> None:
    p = {k: torch.from_numpy(v) for k, v in read_params(PARAMS.read_bytes(), "tiny").items()}
    x = (torch.from_numpy(pictures()) - 127.5) / 128
    x = f.conv2d(x, p["conv_w"], stride=2, padding=1)
    x = f.batch_norm(x, p["mean"], p["var"], p["gamma"], p["beta"], eps=1e-3)
    x = f.prelu(x, p["slope"])
    x = x + f.conv2d(x, p["depth"], p["depth_bias"], padding=1, groups=8).relu()
    padded = f.pad(x, (1, 2, 1, 2))
    counted = f.pad(torch.ones_like(x[:1, :1]), (1, 1, 1, 1), value=1.0)
    area = f.avg_pool2d(f.pad(counted, (0, 1, 0, 1)), 3, 2)
    x = f.avg_pool2d(padded, 3, 2) / area
    expected = f.linear(x.flatten(1), p["fc"], p["fc_bias"]).numpy()
    made = export_mxnet(SYMBOL, None, (16, 16))
    assert np.abs(run(made.model, pictures()) - expected).max() < 1e-4
    assert made.preprocessing is not None
    assert (made.preprocessing.color, made.preprocessing.scaling) == ("rgb", "0-255")


def test_either_file_may_be_named() -> None:
    by_symbol = export_mxnet(SYMBOL, None, (16, 16)).model
    by_params = export_mxnet(PARAMS, None, (16, 16)).model
    assert by_symbol == by_params


def test_fixed_gamma_is_one_whatever_is_stored(tmp_path: Path) -> None:
    shutil.copy(PARAMS, tmp_path)
    text = SYMBOL.read_text().replace('"fix_gamma": "False"', '"fix_gamma": "True"')
    (tmp_path / SYMBOL.name).write_text(text)
    model = export_mxnet(tmp_path / SYMBOL.name, None, (16, 16)).model
    scales = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    assert (scales["bn.scale"] == 1).all()


def test_the_picture_size_is_found_by_what_fits(shared_data: Path) -> None:
    made = export_mxnet(shared_data / "models" / "mxnet" / "mobilefacenet_y1-symbol.json")
    assert "112x112" in made.notes[0]


def test_a_real_model_equals_its_onnx_copy(shared_data: Path) -> None:
    models = shared_data / "models"
    made = export_mxnet(models / "mxnet" / "mobilefacenet_y1-0000.params")
    faces = sorted((shared_data / "lfw_112").glob("A*/*_0001.jpg"))[:8]
    images = read_faces(faces)
    copy = onnx.load(models / "onnx" / "mobilefacenet_y1_from_mxnet.onnx")
    assert np.abs(unit(run(made.model, images)) - unit(run(copy, images))).max() <= 1e-5


def test_half_a_model_is_refused(tmp_path: Path) -> None:
    shutil.copy(SYMBOL, tmp_path)
    with pytest.raises(UnreadableModel, match="half a model"):
        export_mxnet(tmp_path / SYMBOL.name)


def test_two_equally_likely_halves_are_refused(tmp_path: Path) -> None:
    shutil.copy(SYMBOL, tmp_path)
    for epoch in ("tiny-0001.params", "tiny-0002.params"):
        shutil.copy(PARAMS, tmp_path / epoch)
    with pytest.raises(SpecError, match="several candidates"):
        export_mxnet(tmp_path / SYMBOL.name)


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (struct.pack("<QQQ", 0x112, 0, 2**60), "promises"),
        (struct.pack("<QQQIii4q", 0x112, 0, 1, 0xF993FAC9, 0, 4, 2**40, 2**40, 9, 9), "truncated"),
        (struct.pack("<QQQIiiq", 0x112, 0, 1, 0xF993FAC9, 0, 1, -5) + bytes(12), "impossible"),
        (struct.pack("<QQQIii", 0x112, 0, 1, 0xF993FAC9, 0, 2**30), "axes"),
        (struct.pack("<QQQIi", 0x112, 0, 1, 0xF993FAC9, 1), "sparse"),
        (struct.pack("<QQ", 0x113, 0), "mark"),
    ],
)
def test_lying_parameter_files_are_refused(content: bytes, error: str) -> None:
    with pytest.raises(Exception, match=error) as caught:
        read_params(content, "evil.params")
    assert type(caught.value).__module__ == "onnxfr.errors"


def test_a_circular_graph_is_refused() -> None:
    node = {"op": "relu", "name": "a", "inputs": [[0, 0, 0]]}
    with pytest.raises(UnreadableModel, match="after it"):
        read_symbol(json.dumps({"nodes": [node], "heads": [[0, 0, 0]]}).encode())


def test_an_unknown_operator_is_named(tmp_path: Path) -> None:
    shutil.copy(PARAMS, tmp_path)
    (tmp_path / SYMBOL.name).write_text(SYMBOL.read_text().replace("LeakyReLU", "Custom"))
    with pytest.raises(UnsupportedModel, match="operator Custom"):
        export_mxnet(tmp_path / SYMBOL.name, None, (16, 16))


@pytest.mark.parametrize(
    ("operator", "settings"),
    [
        ("Pooling", {"kernel": "(2, 2)", "pooling_convention": "same"}),
        ("Pooling", {"kernel": "(2, 2)", "layout": "NHWC"}),
        ("Pooling", {"global_pool": "True", "layout": "NHWC"}),
        ("Convolution", {"kernel": "(1, 1)", "no_bias": "True", "layout": "NHWC"}),
    ],
)
def test_settings_without_a_form_here_are_refused(operator: str, settings: dict[str, str]) -> None:
    graph = GraphWriter("test")
    operands = [graph.input("x", (3, 7, 7)), np.ones((4, 3, 1, 1), np.float32)]
    with pytest.raises(UnsupportedModel, match="known here are"):
        OPERATORS[operator](graph, Layer(operator, "layer", settings), operands)
    # MXNet itself writes None for the layout that is the default
    plain = {key: value for key, value in settings.items() if key != "pooling_convention"}
    OPERATORS[operator](graph, Layer(operator, "layer", {**plain, "layout": "None"}), operands)


@pytest.mark.parametrize("operator", ["mean", "sum"])
@pytest.mark.parametrize("axes", ["(0, 1)", "(0, -3)"])
def test_axes_may_name_what_is_kept(operator: str, axes: str) -> None:
    graph = GraphWriter("test")
    settings = {"axis": axes, "exclude": "True"}
    value = OPERATORS[operator](
        graph, Layer(operator, "layer", settings), [graph.input("x", (3, 16, 16))]
    )
    expected = getattr(pictures(), operator)((2, 3))
    answer = run(graph.build({"y": value}), pictures())
    np.testing.assert_allclose(answer, expected, rtol=1e-5)
