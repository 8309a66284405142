"""The OpenVINO reader: against OpenVINO's own answers on a tiny net, and on real ones."""

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
from onnxfr.exporters._graph_writer import GraphWriter
from onnxfr.exporters._openvino_ir import Layer, parse_xml
from onnxfr.exporters._openvino_operators import OPERATORS
from onnxfr.exporters.openvino import export_openvino

GOLDEN = Path(__file__).parents[2] / "golden" / "exporters"
GRAPH = GOLDEN / "openvino" / "tiny.xml"


def run(model: onnx.ModelProto, images: NDArray[np.float32]) -> NDArray[np.float32]:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    answer: NDArray[np.float32] = session.run(None, {session.get_inputs()[0].name: images})[0]
    return answer


def unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def pictures() -> NDArray[np.float32]:
    count = np.arange(2 * 3 * 16 * 16)
    return ((count * count * 7 + count * 37) % 251).astype(np.float32).reshape(2, 3, 16, 16)


def changed(folder: Path, old: str, new: str) -> Path:
    shutil.copy(GRAPH.with_suffix(".bin"), folder)
    text = GRAPH.read_text()
    assert old in text
    (folder / GRAPH.name).write_text(text.replace(old, new, 1))
    return folder / GRAPH.name


def test_a_tiny_net_answers_as_openvino_does() -> None:
    """Compressed weights, a quantised range, shapes computed from the batch, attention."""
    expected = np.array(json.loads((GOLDEN / "answers_openvino.json").read_text()))
    made = export_openvino(GRAPH)
    assert np.abs(run(made.model, pictures()) - expected).max() < 1e-5
    assert export_openvino(GRAPH.with_suffix(".bin")).model == made.model
    assert made.model.graph.output[0].name == "embedding"


def test_quantised_ranges_keep_a_useful_gradient() -> None:
    kinds = {node.op_type for node in export_openvino(GRAPH).model.graph.node}
    assert {"QuantizeLinear", "DequantizeLinear"} <= kinds
    assert "Round" not in kinds


@pytest.mark.parametrize(
    ("name", "compressed"),
    [
        ("mobilefacenet_y1_from_mxnet", False),
        ("mobilefacenet_y1_from_mxnet", True),
        ("edgeface_xxs_dequant", True),
    ],
)
def test_real_models_answer_as_openvino_does(
    name: str, compressed: bool, shared_data: Path, tmp_path: Path
) -> None:
    runtime = pytest.importorskip("openvino", reason="the openvino package is not installed here")
    original = shared_data / "models" / "onnx" / f"{name}.onnx"
    path = tmp_path / "model.xml"
    converted = runtime.convert_model(original)
    runtime.save_model(converted, str(path), compress_to_fp16=compressed)
    faces = sorted((shared_data / "lfw_112").glob("B*/*_0001.jpg"))[:8]
    pixels = [cv2.cvtColor(cv2.imread(str(face)), cv2.COLOR_BGR2RGB) for face in faces]
    images = np.stack(pixels).transpose(0, 3, 1, 2).astype(np.float32)
    hint = {"INFERENCE_PRECISION_HINT": "f32"}
    theirs = np.asarray(runtime.Core().compile_model(str(path), "CPU", hint)([images])[0])
    ours = run(export_openvino(path).model, images)
    assert np.abs(unit(ours) - unit(theirs)).max() <= 1e-4
    source = run(onnx.load(original), images)
    assert np.abs(unit(ours) - unit(source)).max() <= (5e-3 if compressed else 1e-4)


BOMB = b"""<?xml version="1.0"?><!DOCTYPE net [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>
<net name="&b;" version="11"><layers/></net>"""
EXTERNAL = b"""<?xml version="1.0"?><!DOCTYPE net SYSTEM "other.dtd"><net version="11"/>"""


@pytest.mark.parametrize("content", [BOMB, EXTERNAL])
def test_document_types_are_refused_before_they_are_read(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "tiny.xml").write_bytes(content)
    shutil.copy(GRAPH.with_suffix(".bin"), tmp_path)
    with pytest.raises(UnsafeFile, match="document type"):
        export_openvino(tmp_path / "tiny.xml")


def test_nesting_is_bounded() -> None:
    with pytest.raises(UnsafeFile, match="nested"):
        parse_xml(b"<net>" * 10_000)


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ('offset="0"', 'offset="7000000"', "promised"),
        ('offset="0"', 'offset="-6"', "promised"),
        ('size="12"', 'size="60000000000000"', "promised"),
        ('shape="1, 3, 1, 1"', 'shape="1, 3, 1, 1099511627776"', "bytes of numbers"),
        ('shape="1, 3, 1, 1"', 'shape="1, 3, -1, 1"', "impossible"),
        ('type="Convolution"', 'type="Magic"', "Magic"),
        ('type="Convolution"', 'type="Parameter"', "expected one input"),
        ('from-layer="0"', 'from-layer="90000"', "does not define"),
        ('from-layer="0" from-port="0"', 'from-layer="0" from-port="7"', "lacks"),
        ('from-layer="0" from-port="0"', 'from-layer="4" from-port="2"', "circle"),
        ('version="11"', 'version="7"', "version 10 or 11"),
        ('shape="?,3,16,16"', 'shape="?,4,16,16"', "three channels"),
        ('strides="2, 2"', 'strides="0, 0"', "absurd"),
        ('strides="2, 2"', 'strides="a, b"', "whole numbers"),
        ('element_type="f16"', 'element_type="string"', "string"),
    ],
)
def test_lying_graphs_are_refused(old: str, new: str, error: str, tmp_path: Path) -> None:
    with pytest.raises(OnnxfrError, match=error):
        export_openvino(changed(tmp_path, old, new))


def test_weights_must_lie_beside_the_graph(tmp_path: Path) -> None:
    shutil.copy(GRAPH, tmp_path)
    with pytest.raises(UnreadableModel, match="half a model"):
        export_openvino(tmp_path / GRAPH.name)


def _stored_only(kind: str, numbers: str, settings: str = "") -> str:
    """Return a graph whose answer is the picture plus what ``kind`` makes of two constants."""

    def const(number: int, offset: int, size: int, element: str, shape: str) -> str:
        data = f'element_type="{element}" shape="{shape}" offset="{offset}" size="{size}"'
        return (
            f'<layer id="{number}" name="c{number}" type="Const" version="opset1"><data {data}/>'
            '<output><port id="0"/></output></layer>'
        )

    ports = '<input><port id="0"/><port id="1"/></input><output><port id="2"/></output>'
    edges = [(1, 0, 3, 0), (2, 0, 3, 1), (0, 0, 4, 0), (3, 2, 4, 1), (4, 2, 5, 0)]
    names = ("from-layer", "from-port", "to-layer", "to-port")
    lines = [" ".join(f'{n}="{v}"' for n, v in zip(names, e, strict=True)) for e in edges]
    return (
        '<?xml version="1.0"?><net name="n" version="11"><layers>'
        '<layer id="0" name="data" type="Parameter" version="opset1">'
        '<data shape="?,3,16,16" element_type="f32"/><output><port id="0"/></output></layer>'
        + const(1, 0, 4, "f32", "1")
        + const(2, 8, 8 * len(numbers.split(",")), "i64", str(len(numbers.split(","))))
        + f'<layer id="3" name="made" type="{kind}" version="opset1"><data {settings}/>{ports}'
        f'</layer><layer id="4" name="sum" type="Add" version="opset1">{ports}</layer>'
        '<layer id="5" name="result" type="Result" version="opset1"><input><port id="0"/></input>'
        "</layer></layers><edges>" + "".join(f"<edge {line}/>" for line in lines) + "</edges></net>"
    )


@pytest.mark.parametrize("kind", ["Broadcast", "Tile"])
def test_small_files_cannot_ask_for_endless_memory(kind: str, tmp_path: Path) -> None:
    numbers = "4000000000"
    (tmp_path / "n.xml").write_text(_stored_only(kind, numbers))
    content = np.float32(1).tobytes() + bytes(4) + np.int64(numbers).tobytes()
    (tmp_path / "n.bin").write_bytes(content)
    with pytest.raises((UnsafeFile, UnsupportedModel, UnreadableModel)):
        export_openvino(tmp_path / "n.xml")
    (tmp_path / "n.bin").write_bytes(content[:8] + np.int64(16).tobytes())
    made = export_openvino(tmp_path / "n.xml").model
    assert np.array_equal(run(made, pictures()), pictures() + 1)


@pytest.mark.parametrize(("kind", "expected"), [("Mod", np.fmod), ("FloorMod", np.mod)])
@pytest.mark.parametrize("divisor", [3.0, -3.0])
def test_remainders_have_the_sign_openvino_gives_them(
    kind: str, expected: np.ufunc, divisor: float
) -> None:
    graph = GraphWriter("test")
    layer = Layer(0, "rest", kind, "opset1", {"auto_broadcast": "numpy"}, (), (), "")
    x = graph.input("x", (3, 16, 16))
    answer = OPERATORS[kind](graph, layer, [x, np.float32(divisor)])
    assert isinstance(answer, str)
    images = pictures() - 125.5
    np.testing.assert_allclose(
        run(graph.build({"y": answer}), images), expected(images, np.float32(divisor)), atol=1e-5
    )
    whole = graph.add("Cast", [x], {"to": onnx.TensorProto.INT64})
    answer = OPERATORS[kind](graph, layer, [whole, np.int64(divisor)])
    assert isinstance(answer, str)
    numbers = images.astype(np.int64)
    np.testing.assert_array_equal(
        run(graph.build({"z": answer}), images), expected(numbers, np.int64(divisor))
    )
