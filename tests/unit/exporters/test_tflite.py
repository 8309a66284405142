"""The TFLite reader: against LiteRT on tiny nets of four precisions, and on real ones."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import cv2
import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

from onnxfr.errors import OnnxfrError, UnreadableModel, UnsupportedModel
from onnxfr.exporters.tensorflow import export_tensorflow
from onnxfr.exporters.tflite import export_tflite
from onnxfr.model_zoo import zoo_card
from onnxfr.model_zoo.obtaining import download, downloaded

GOLDEN = Path(__file__).parents[2] / "golden" / "exporters"
FOLDER = GOLDEN / "tflite"
Rows = NDArray[np.float32]


def run(model: onnx.ModelProto, images: Rows) -> Rows:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    answer: Rows = session.run(None, {session.get_inputs()[0].name: images})[0]
    return answer


def unit(rows: Rows) -> Rows:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def pictures() -> Rows:
    count = np.arange(2 * 3 * 16 * 16)
    return ((count * count * 7 + count * 37) % 251).astype(np.float32).reshape(2, 3, 16, 16)


def faces(shared_data: Path, count: int, side: int) -> Rows:
    people = sorted((shared_data / "lfw_112").iterdir())[: 40 * count : 40]
    found = []
    for person in people:
        pixels = cv2.imread(str(sorted(person.iterdir())[0]))
        found.append(cv2.cvtColor(cv2.resize(pixels, (side, side)), cv2.COLOR_BGR2RGB))
    return np.stack(found).transpose(0, 3, 1, 2).astype(np.float32)


def whitened(pixels: Rows) -> Rows:
    mean = pixels.mean((1, 2, 3), keepdims=True)
    return (pixels - mean) / pixels.std((1, 2, 3), keepdims=True)


def source(name: str) -> Path:
    card = zoo_card(name)
    if not downloaded(card):
        pytest.skip(f"{name} is not in the cache: onnxfr zoo get {name}")
    return download(card)[0]


@pytest.mark.parametrize(
    ("kind", "closest"), [("fp32", 1e-6), ("fp16", 1e-6), ("hybrid", 0.999), ("int8", 0.999)]
)
def test_a_tiny_net_answers_as_litert_does(kind: str, closest: float) -> None:
    expected = np.array(json.loads((GOLDEN / "answers.json").read_text())[f"tflite_{kind}"])
    found = unit(run(export_tflite(FOLDER / f"tiny_{kind}.tflite").model, pictures()))
    if closest < 0.5:
        assert np.abs(found - unit(expected)).max() < closest
    else:
        assert (found * unit(expected)).sum(1).min() > closest


def test_a_quantised_net_stays_quantised_and_a_half_precise_one_is_widened() -> None:
    whole = export_tflite(FOLDER / "tiny_int8.tflite").model.graph
    kinds = {tensor.name: tensor.data_type for tensor in whole.initializer}
    assert onnx.TensorProto.INT8 in kinds.values()
    assert {"QuantizeLinear", "DequantizeLinear"} <= {node.op_type for node in whole.node}
    half = export_tflite(FOLDER / "tiny_fp16.tflite").model.graph
    assert {tensor.data_type for tensor in half.initializer} <= {1, 7}


def test_a_real_quantised_net_separates_people(shared_data: Path) -> None:
    model = export_tflite(shared_data / "models" / "tflite" / "coral_mbf_993_quant.tflite").model
    people = [p for p in sorted((shared_data / "lfw_112").iterdir()) if len(list(p.iterdir())) > 1]
    paths = [path for person in people[:8] for path in sorted(person.iterdir())[:2]]
    pixels = np.stack([cv2.imread(str(p))[:, 8:104, ::-1] for p in paths]).astype(np.float32)
    rows = unit(run(model, (pixels.transpose(0, 3, 1, 2) - 127.5) / 128))
    scores = rows @ rows.T
    same = np.mean([scores[k, k + 1] for k in range(0, len(rows), 2)])
    other = np.mean([scores[k, (k + 2) % len(rows)] for k in range(0, len(rows), 2)])
    assert same > other + 0.4


def test_both_precisions_of_facelib_are_one_network(shared_data: Path) -> None:
    raw = faces(shared_data, 8, 112)
    full = unit(run(export_tflite(source("facelib_mobilenet_fp32")).model, raw))
    eight = unit(run(export_tflite(source("facelib_mobilenet_int8")).model, (raw - 127.5) / 128))
    assert (full * eight).sum(1).min() > 0.985


def test_facenet_of_tensorflow_and_of_tflite_are_one_network(shared_data: Path) -> None:
    white = whitened(faces(shared_data, 2, 160))
    frozen = unit(run(export_tensorflow(source("facenet_vggface2")).model, white))
    small = unit(run(export_tflite(source("facenet512_tflite")).model, white))
    assert (frozen * small).sum(1).min() > 0.999


def changed(tmp_path: Path, old: bytes, new: bytes, kind: str = "fp32") -> Path:
    content = (FOLDER / f"tiny_{kind}.tflite").read_bytes()
    assert old in content
    path = tmp_path / "changed.tflite"
    path.write_bytes(content.replace(old, new, 1))
    return path


def test_a_shape_that_its_bytes_cannot_fill_is_refused(tmp_path: Path) -> None:
    kernel = struct.pack("<5i", 4, 8, 3, 3, 3)
    lie = struct.pack("<5i", 4, 2**30, 2**30, 3, 3)
    with pytest.raises(UnreadableModel, match="bytes"):
        export_tflite(changed(tmp_path, kernel, lie))


def test_a_vector_longer_than_the_file_is_refused(tmp_path: Path) -> None:
    kernel = struct.pack("<5i", 4, 8, 3, 3, 3)
    with pytest.raises(UnreadableModel, match="promises"):
        export_tflite(changed(tmp_path, kernel, struct.pack("<5I", 2**31, 8, 3, 3, 3)))


def test_an_offset_out_of_the_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lie.tflite"
    for offset in (2**32 - 1, 2**31, 0, 4):
        path.write_bytes(struct.pack("<I", offset) + b"TFL3" + bytes(64))
        with pytest.raises(OnnxfrError):
            export_tflite(path)


def test_custom_operators_are_named(tmp_path: Path) -> None:
    table = bytearray((FOLDER / "tiny_fp32.tflite").read_bytes())
    from onnxfr.exporters import _tflite_schema as schema

    model = schema.Table(bytes(table), struct.unpack_from("<I", table)[0])
    code = model.tables(1)[0]
    for field, width in ((0, "b"), (3, "i")):
        place = code._place(field)
        if place:
            struct.pack_into(f"<{width}", table, place, 32 if width == "i" else 0)
    path = tmp_path / "custom.tflite"
    path.write_bytes(bytes(table))
    with pytest.raises(UnsupportedModel, match="number 32"):
        export_tflite(path)


def test_damaged_files_give_one_typed_error(tmp_path: Path) -> None:
    whole = (FOLDER / "tiny_fp32.tflite").read_bytes()
    rng = np.random.Generator(np.random.Philox(key=9))
    path = tmp_path / "damaged.tflite"
    refused = 0
    for _ in range(60):
        data = bytearray(whole)
        place = int(rng.integers(len(data)))
        data[place : place + 4] = rng.bytes(int(rng.integers(0, 8)))
        path.write_bytes(bytes(data))
        try:
            export_tflite(path)
        except OnnxfrError:
            refused += 1
    assert refused > 10
