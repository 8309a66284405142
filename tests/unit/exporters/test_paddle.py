"""The PaddlePaddle reader: against Paddle's own answers on a tiny net in both graph formats."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

from onnxfr.errors import OnnxfrError, UnreadableModel
from onnxfr.exporters._paddle_program import read_program
from onnxfr.exporters.paddle import export_paddle

GOLDEN = Path(__file__).parents[2] / "golden" / "exporters"
FOLDER = GOLDEN / "paddle"
OLD, NEW = FOLDER / "tiny.pdmodel", FOLDER / "tiny3.json"


def run(model: onnx.ModelProto, images: NDArray[np.float32]) -> NDArray[np.float32]:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    answer: NDArray[np.float32] = session.run(None, {session.get_inputs()[0].name: images})[0]
    return answer


def pictures() -> NDArray[np.float32]:
    count = np.arange(2 * 3 * 16 * 16)
    return ((count * count * 7 + count * 37) % 251).astype(np.float32).reshape(2, 3, 16, 16)


@pytest.mark.parametrize(("graph", "version"), [(OLD, "old"), (NEW, "new")])
def test_a_tiny_net_answers_as_paddle_does(graph: Path, version: str) -> None:
    expected = np.array(json.loads((GOLDEN / f"answers_paddle_{version}.json").read_text()))
    made = export_paddle(graph)
    assert np.abs(run(made.model, pictures()) - expected).max() < 1e-5
    assert export_paddle(graph.with_suffix(".pdiparams")).model == made.model
    assert made.model.graph.input[0].type.tensor_type.shape.dim[2].dim_value == 16


def test_both_formats_hold_the_same_network() -> None:
    kinds = [[node.op_type for node in export_paddle(p).model.graph.node] for p in (OLD, NEW)]
    assert sorted(kinds[0]) == sorted(kinds[1])


def changed(folder: Path, change: Callable[[Any], None]) -> Path:
    shutil.copy(NEW.with_suffix(".pdiparams"), folder)
    raw = json.loads(NEW.read_text())
    change(raw["program"]["regions"][0]["blocks"][0]["ops"])
    (folder / NEW.name).write_text(json.dumps(raw))
    return folder / NEW.name


def _find(ops: Any, kind: str) -> Any:
    return next(each for each in ops if each["#"] == kind)


def _unknown(ops: Any) -> None:
    _find(ops, "1.conv2d")["#"] = "1.magic"


def _undefined(ops: Any) -> None:
    _find(ops, "1.conv2d")["I"][0]["%"] = 99_999


def _circle(ops: Any) -> None:
    _find(ops, "1.conv2d")["I"][0]["%"] = _find(ops, "1.fetch")["I"][0]["%"]


def _two_inputs(ops: Any) -> None:
    ops.append(_find(ops, "1.data"))


def _huge(ops: Any) -> None:
    _find(ops, "1.full")["A"][0]["AT"]["D"] = [2**40, 2**20]


def _no_step(ops: Any) -> None:
    strides = next(each for each in _find(ops, "1.conv2d")["A"] if each["N"] == "strides")
    strides["AT"]["D"] = [{"#": "0.a_i32", "D": 0}]


def _one_weight_more(ops: Any) -> None:
    ops.insert(0, {"#": "p", "A": [0, 1, 1, "zzz"], "O": {"%": 5000}})


def _one_weight_less(ops: Any) -> None:
    ops.remove(_find(ops, "p"))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (_unknown, "magic"),
        (_undefined, "before it is computed"),
        (_circle, "before it is computed"),
        (_two_inputs, "one input"),
        (_huge, "fills the shape"),
        (_no_step, "absurd"),
        (_one_weight_more, "truncated"),
        (_one_weight_less, "more than"),
    ],
)
def test_lying_graphs_are_refused(
    change: Callable[[Any], None], error: str, tmp_path: Path
) -> None:
    with pytest.raises(OnnxfrError, match=error):
        export_paddle(changed(tmp_path, change))


@pytest.mark.parametrize(
    ("place", "bytes_there", "error"),
    [
        (0, b"\x07\0\0\0", "format 7"),
        (4, b"\x01\0\0\0\0\0\0\0", "sequences"),
        (16, b"\xff\xff\xff\x7f", "description"),
        (20, b"\x08\x63", "data type"),
        (22, b"\x10\xff\xff\xff\xff\xff\xff\x7f", "has no end"),
    ],
)
def test_lying_weights_are_refused(
    place: int, bytes_there: bytes, error: str, tmp_path: Path
) -> None:
    shutil.copy(OLD, tmp_path)
    content = bytearray(OLD.with_suffix(".pdiparams").read_bytes())
    content[place : place + len(bytes_there)] = bytes_there
    (tmp_path / "tiny.pdiparams").write_bytes(content)
    with pytest.raises(OnnxfrError, match=error):
        export_paddle(tmp_path / OLD.name)


def test_a_protobuf_that_lies_about_its_length_is_refused() -> None:
    content = OLD.read_bytes()
    with pytest.raises(UnreadableModel, match="promises"):
        read_program(content[:1] + b"\xff\xff\xff\xff\x7f" + content[6:])


def test_weights_must_lie_beside_the_graph(tmp_path: Path) -> None:
    shutil.copy(OLD, tmp_path)
    with pytest.raises(UnreadableModel, match="half a model"):
        export_paddle(tmp_path / OLD.name)
