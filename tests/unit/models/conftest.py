"""Small vendor networks in every dress a real one was seen in, and the command line in-process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxfr.cli.app import run

sys.path.insert(0, str(Path(__file__).parent))

SIZE = (32, 24)


def vendor_net(
    *,
    opset: int = 13,
    layout: str = "nchw",
    elem_type: int = TensorProto.FLOAT,
    batch: int | str | None = "N",
    size: tuple[int, int] = SIZE,
    width: int = 64,
    baked: bool = False,
    initializers_as_inputs: bool = False,
    tail: str | None = None,
    output: str = "feature",
) -> onnx.ModelProto:
    """Two convolutions, pooling and a linear layer, dressed as asked."""
    rng = np.random.default_rng(3)
    half = elem_type == TensorProto.FLOAT16
    kind = np.float16 if half else np.float32

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array((rng.normal(size=shape) * 0.3).astype(kind), name)

    stored = [
        weight("w1", 8, 3, 3, 3),
        weight("w2", 16, 8, 3, 3),
        weight("fc", width, 16),
        weight("bias", width),
    ]
    nodes = []
    value = "data"
    if elem_type in (TensorProto.UINT8, TensorProto.INT8):
        nodes.append(helper.make_node("Cast", [value], ["floats"], to=TensorProto.FLOAT))
        value = "floats"
    if layout == "nhwc":
        nodes.append(helper.make_node("Transpose", [value], ["planes"], perm=[0, 3, 1, 2]))
        value = "planes"
    nodes += [
        helper.make_node("Conv", [value, "w1"], ["c1"], strides=[2, 2]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], strides=[2, 2]),
        helper.make_node("Relu", ["c2"], ["r2"]),
        helper.make_node("GlobalAveragePool", ["r2"], ["pool"]),
    ]
    if baked:
        stored.append(numpy_helper.from_array(np.asarray([1, 16], np.int64), "to"))
        nodes.append(helper.make_node("Reshape", ["pool", "to"], ["flat"]))
    else:
        nodes.append(helper.make_node("Flatten", ["pool"], ["flat"]))
    last = "before_tail" if tail else output
    nodes.append(helper.make_node("Gemm", ["flat", "fc", "bias"], [last], transB=1))
    if tail:
        nodes.append(helper.make_node(tail, [last], [output], **({"axis": 1})))
    shape = [batch, 3, *size] if layout == "nchw" else [batch, *size, 3]
    inputs = [helper.make_tensor_value_info("data", elem_type, shape)]
    if initializers_as_inputs:
        inputs += [helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)) for t in stored]
    float_type = TensorProto.FLOAT16 if half else TensorProto.FLOAT
    # The declared output shape is wrong on purpose: real files do this.
    outputs = [helper.make_tensor_value_info(output, float_type, [1, width])]
    graph = helper.make_graph(nodes, "vendor", inputs, outputs, initializer=stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 3 if initializers_as_inputs else min(onnx.IR_VERSION, 10)
    return model


@pytest.fixture
def make_vendor_net() -> Callable[..., onnx.ModelProto]:
    return vendor_net


@dataclass
class Outcome:
    code: int
    out: str
    err: str


@pytest.fixture
def onnxfr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    """Run a command line in this process and return what a user would see."""

    def call(*words: str | Path) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["onnxfr", *(str(word) for word in words)])
        capsys.readouterr()
        try:
            run()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        seen = capsys.readouterr()
        return Outcome(code, seen.out, seen.err)

    return call


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ONNXFR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder pip looks in instead of any index."""
    folder = tmp_path / "links"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder
