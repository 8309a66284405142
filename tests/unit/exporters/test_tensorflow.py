"""The TensorFlow reader: against TensorFlow's own answers on tiny nets, and hostile files."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

from onnxfr.errors import OnnxfrError, UnreadableModel, UnsafeFile, UnsupportedModel
from onnxfr.exporters._tf_messages import read_tensor
from onnxfr.exporters.base import EXPORTERS, detect
from onnxfr.exporters.tensorflow import export_tensorflow

GOLDEN = Path(__file__).parents[2] / "golden" / "exporters"
FROZEN, SAVED = GOLDEN / "tensorflow" / "tiny.pb", GOLDEN / "saved_model"
INDEX, SHARD = "variables/variables.index", "variables/variables.data-00000-of-00001"


def run(model: onnx.ModelProto, images: NDArray[np.float32]) -> NDArray[np.float32]:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    answer: NDArray[np.float32] = session.run(None, {session.get_inputs()[0].name: images})[0]
    return answer


def unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def pictures() -> NDArray[np.float32]:
    count = np.arange(2 * 3 * 16 * 16)
    return ((count * count * 7 + count * 37) % 251).astype(np.float32).reshape(2, 3, 16, 16)


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number: int, payload: bytes | int) -> bytes:
    if isinstance(payload, int):
        return varint(number << 3) + varint(payload)
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def node(op: str, name: str, *inputs: str, **attributes: bytes) -> bytes:
    told = field(1, name.encode()) + field(2, op.encode())
    told += b"".join(field(3, i.encode()) for i in inputs)
    for key, value in attributes.items():
        told += field(5, field(1, key.encode()) + field(2, value))
    return told


def shape(*sides: int) -> bytes:
    return b"".join(field(2, field(1, side)) for side in sides)


def test_a_frozen_graph_answers_as_tensorflow_does() -> None:
    expected = np.array(json.loads((GOLDEN / "answers.json").read_text())["tensorflow"])
    made = export_tensorflow(FROZEN)
    assert np.abs(run(made.model, pictures()) - expected).max() < 1e-6
    assert "placeholder phase_train fixed to its value at inference" in made.notes
    assert sum(n.op_type == "Transpose" for n in made.model.graph.node) == 1


@pytest.mark.parametrize("place", [SAVED, SAVED / "saved_model.pb"])
def test_a_saved_model_answers_as_tensorflow_does(place: Path) -> None:
    expected = np.array(json.loads((GOLDEN / "answers.json").read_text())["saved_model"])
    found, file = detect(place)
    assert found.name == "tensorflow"
    assert not EXPORTERS.get("onnx").recognises(SAVED / "fingerprint.pb")
    model = found.export(file).model
    assert np.abs(unit(run(model, pictures())) - unit(expected)).max() < 1e-6


def copy_of(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    shutil.copytree(SAVED, folder)
    return folder


def test_a_saved_model_without_variables_is_half_a_model(tmp_path: Path) -> None:
    folder = copy_of(tmp_path)
    shutil.rmtree(folder / "variables")
    with pytest.raises(UnsafeFile):
        export_tensorflow(folder)


@pytest.mark.parametrize("file", [INDEX, SHARD])
def test_variables_that_lie_elsewhere_are_refused(file: str, tmp_path: Path) -> None:
    folder = copy_of(tmp_path)
    outside = tmp_path / "outside"
    shutil.move(folder / file, outside)
    (folder / file).symlink_to(outside)
    with pytest.raises(UnsafeFile):
        export_tensorflow(folder)


def test_a_cut_shard_is_noticed(tmp_path: Path) -> None:
    folder = copy_of(tmp_path)
    (folder / SHARD).write_bytes((folder / SHARD).read_bytes()[:600])
    with pytest.raises(UnreadableModel, match="outside"):
        export_tensorflow(folder)


@pytest.mark.parametrize("file", ["saved_model.pb", INDEX])
def test_damaged_saved_models_give_one_typed_error(file: str, tmp_path: Path) -> None:
    folder = copy_of(tmp_path)
    whole = (folder / file).read_bytes()
    rng = np.random.Generator(np.random.Philox(key=len(file)))
    refused = 0
    for _ in range(40):
        data = bytearray(whole)
        place = int(rng.integers(len(data)))
        data[place : place + 4] = rng.bytes(int(rng.integers(0, 8)))
        (folder / file).write_bytes(bytes(data))
        try:
            export_tensorflow(folder)
        except OnnxfrError:
            refused += 1
    assert refused > 0


def test_an_index_that_lies_about_its_blocks_is_refused(tmp_path: Path) -> None:
    folder = copy_of(tmp_path)
    content = (folder / INDEX).read_bytes()
    lie = content[:-48] + varint(2**60) * 4
    lie += bytes(len(content) - 8 - len(lie)) + content[-8:]
    (folder / INDEX).write_bytes(lie)
    with pytest.raises(UnreadableModel):
        export_tensorflow(folder)


def _call(name: str, function: str) -> bytes:
    return node("PartitionedCall", name, "x", f=field(10, field(1, function.encode())))


def _bomb(folder: Path) -> bytes:
    """Forty functions, each calling the next one ten times."""
    functions = b""
    for k in range(40):
        signature = field(1, f"f{k}".encode()) + field(2, field(1, b"x")) + field(3, field(1, b"y"))
        calls = b"".join(field(3, _call(f"c{j}", f"f{(k + 1) % 40}")) for j in range(10))
        answer = field(4, field(1, b"y") + field(2, b"c0:output:0"))
        functions += field(1, field(1, signature) + calls + answer)
    graph = field(1, node("Placeholder", "x")) + field(1, _call("call", "f0")) + field(2, functions)
    info = field(1, b"x:0") + field(2, 1) + field(3, shape(1, 16, 16, 3))
    out = field(1, b"call:0") + field(2, 1)
    signature = field(1, field(1, b"x") + field(2, info)) + field(2, field(1, b"y") + field(2, out))
    meta = field(1, b"") + field(2, graph)
    meta += field(5, field(1, b"serving_default") + field(2, signature))
    (folder / "saved_model.pb").write_bytes(field(1, 1) + field(2, meta))
    return b""


def test_functions_that_unfold_without_end_are_refused(tmp_path: Path) -> None:
    _bomb(tmp_path)
    with pytest.raises(UnreadableModel, match="unfold"):
        export_tensorflow(tmp_path / "saved_model.pb")


PLACE = node("Placeholder", "x", dtype=field(6, 1), shape=field(7, shape(1, 16, 16, 3)))


def constant(name: str, tensor: bytes) -> bytes:
    return node("Const", name, dtype=field(6, 1), value=field(8, tensor))


def _huge() -> bytes:
    tensor = field(1, 1) + field(2, shape(2**40, 2**20)) + field(4, bytes(8))
    return field(1, constant("c", tensor)) + field(1, node("Mul", "y", "x", "c"))


def _blown_up() -> bytes:
    tensor = field(1, 1) + field(2, shape(2**30)) + field(5, struct.pack("<f", 1))
    return field(1, constant("c", tensor)) + field(1, node("Mul", "y", "x", "c"))


def _outer() -> bytes:
    sides = [field(1, 1) + field(2, shape(*s)) + field(5, bytes(4)) for s in ((60000, 1), (60000,))]
    parts = b"".join(field(1, constant(f"c{k}", side)) for k, side in enumerate(sides))
    return parts + field(1, node("Mul", "c", "c0", "c1")) + field(1, node("Mul", "y", "x", "c"))


def _two_pictures() -> bytes:
    return field(1, PLACE.replace(b"\x01x", b"\x01z", 1)) + field(1, node("Add", "y", "x", "z"))


def _run_time_branch() -> bytes:
    switch = node("Switch", "s", "x", "decide")
    decide = node("Identity", "decide", "x")
    return field(1, decide) + field(1, switch) + field(1, node("Relu", "y", "s"))


@pytest.mark.parametrize(
    ("make", "kind", "error"),
    [
        (_huge, UnreadableModel, "promised"),
        (_blown_up, UnsafeFile, "given by 1 values"),
        (_outer, UnsafeFile, "blows"),
        (_two_pictures, UnsupportedModel, "one input for pictures"),
        (_run_time_branch, UnsupportedModel, "run time"),
        (lambda: field(1, node("PyFunc", "y", "x")), UnsupportedModel, "PyFunc"),
        (lambda: field(1, node("Relu", "y", "nowhere")), UnreadableModel, "does not define"),
        (lambda: field(1, node("Relu", "y", "y")), OnnxfrError, "circle|nothing"),
    ],
)
def test_lying_graphs_are_refused(
    make: Callable[[], bytes], kind: type[Exception], error: str, tmp_path: Path
) -> None:
    path = tmp_path / "lie.pb"
    path.write_bytes(field(1, PLACE) + make())
    with pytest.raises(kind, match=error):
        export_tensorflow(path)


def test_a_value_stored_once_fills_the_constant() -> None:
    tensor = field(1, 1) + field(2, shape(2, 2)) + field(5, struct.pack("<2f", 3, 4))
    assert read_tensor(tensor, "c").tolist() == [[3, 4], [4, 4]]
