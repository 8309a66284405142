"""GELU and layer normalisation written out by exporters: one operation, the same function."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch.nn import functional as F

from onnxfr.models.graph import to_torch

ROOT_TWO = np.float32(np.sqrt(2))
WIDTH = 6
Steps = list[tuple[str, list[str], str]]

GELU_HEAD: Steps = [("Div", ["x", "root"], "a"), ("Erf", ["a"], "e"), ("Add", ["e", "one"], "s")]
GELUS: dict[str, Steps] = {
    "torch": [*GELU_HEAD, ("Mul", ["x", "s"], "p"), ("Mul", ["p", "half"], "y")],
    "half-x-first": [*GELU_HEAD, ("Mul", ["x", "half"], "p"), ("Mul", ["p", "s"], "y")],
    "half-on-the-left": [*GELU_HEAD, ("Mul", ["half", "x"], "p"), ("Mul", ["s", "p"], "y")],
    "half-of-the-sum": [*GELU_HEAD, ("Mul", ["s", "half"], "p"), ("Mul", ["x", "p"], "y")],
    "halved-by-division": [*GELU_HEAD, ("Div", ["x", "two"], "p"), ("Mul", ["p", "s"], "y")],
    "scaled-by-product": [
        ("Mul", ["x", "inverse"], "a"),
        ("Erf", ["a"], "e"),
        ("Add", ["one", "e"], "s"),
        ("Mul", ["x", "s"], "p"),
        ("Mul", ["half", "p"], "y"),
    ],
}
NOT_GELUS: dict[str, Steps] = {
    "another-reader": [*GELUS["torch"][:-1], ("Mul", ["p", "half"], "g"), ("Add", ["g", "e"], "y")],
    "another-scale": [("Div", ["x", "two"], "a"), *GELUS["torch"][1:]],
    "another-offset": [*GELU_HEAD[:2], ("Add", ["e", "half"], "s"), *GELUS["torch"][3:]],
    "squared": [*GELU_HEAD, ("Mul", ["x", "s"], "p"), ("Mul", ["p", "x"], "y")],
    "sum-squared": [*GELU_HEAD, ("Mul", ["s", "s"], "p"), ("Mul", ["p", "half"], "y")],
}


def norm(axis: int, *, power: bool = True, tail: int = 2) -> tuple[Steps, dict[str, Any]]:
    square: tuple[str, list[str], str] = (
        ("Pow", ["d", "two"], "q") if power else ("Mul", ["d", "d"], "q")
    )
    steps: Steps = [
        ("ReduceMean", ["x"], "m"),
        ("Sub", ["x", "m"], "d"),
        square,
        ("ReduceMean", ["q"], "v"),
        ("Add", ["v", "eps"], "t"),
        ("Sqrt", ["t"], "r"),
        ("Div", ["d", "r"], "n"),
        ("Mul", ["n", "weight"], "w"),
        ("Add", ["w", "bias"], "y"),
    ]
    return steps[: 7 + tail], {"axes": [axis], "keepdims": 1}


def chain(steps: Steps, reduce: dict[str, Any] | None = None) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    stored = {
        "root": ROOT_TWO,
        "inverse": np.float32(1 / ROOT_TWO),
        "one": np.float32(1),
        "half": np.float32(0.5),
        "two": np.float32(2),
        "eps": np.float32(1e-5),
        "weight": rng.normal(size=WIDTH).astype(np.float32),
        "bias": rng.normal(size=WIDTH).astype(np.float32),
        "rows": np.asarray([0, -1, WIDTH], np.int64),
    }
    nodes = [helper.make_node("Reshape", ["image", "rows"], ["x"])]
    for operator, inputs, output in steps:
        attributes = reduce if operator == "ReduceMean" and reduce else {}
        nodes.append(helper.make_node(operator, inputs, [output], **attributes))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 3, 6, 6])],
        [helper.make_empty_tensor_value_info(steps[-1][2])],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in stored.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def pictures() -> torch.Tensor:
    return 2 * torch.randn(3, 3, 6, 6, generator=torch.Generator().manual_seed(1))


def targets(module: torch.fx.GraphModule) -> list[Any]:
    return [node.target for node in module.graph.nodes if node.op == "call_function"]


def agrees_with_onnxruntime(model: onnx.ModelProto, module: torch.nn.Module) -> None:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    want = session.run(None, {"image": pictures().numpy()})[0]
    np.testing.assert_allclose(module(pictures()).numpy(), want, atol=3e-6, rtol=1e-5)


@pytest.mark.parametrize("form", GELUS)
def test_every_way_to_write_gelu_is_one_operation(form: str) -> None:
    model = chain(GELUS[form])
    module = to_torch(model)
    assert targets(module).count(F.gelu) == 1
    assert torch.erf not in targets(module)
    agrees_with_onnxruntime(model, module)


@pytest.mark.parametrize("form", NOT_GELUS)
def test_what_only_resembles_gelu_is_left_alone(form: str) -> None:
    model = chain(NOT_GELUS[form])
    module = to_torch(model)
    assert F.gelu not in targets(module)
    assert torch.erf in targets(module)
    agrees_with_onnxruntime(model, module)


@pytest.mark.parametrize("power", [True, False], ids=["power", "product"])
@pytest.mark.parametrize("tail", [0, 1, 2], ids=["bare", "weight", "weight-and-bias"])
def test_a_written_out_layer_norm_is_one_operation(tail: int, power: bool) -> None:
    model = chain(*norm(-1, power=power, tail=tail))
    module = to_torch(model)
    assert targets(module).count(F.layer_norm) == 1
    assert torch.sqrt not in targets(module)
    agrees_with_onnxruntime(model, module)


def test_normalisation_over_another_axis_is_left_alone() -> None:
    model = chain(*norm(1))
    module = to_torch(model)
    assert F.layer_norm not in targets(module)
    agrees_with_onnxruntime(model, module)


def test_a_variance_that_others_read_stays() -> None:
    steps, reduce = norm(-1)
    model = chain([*steps[:-1], ("Add", ["w", "bias"], "z"), ("Add", ["z", "v"], "y")], reduce)
    agrees_with_onnxruntime(model, to_torch(model))


@pytest.mark.parametrize("form", ["gelu", "layer-norm"])
def test_gradients_are_those_of_the_chain(form: str) -> None:
    model = chain(GELUS["torch"]) if form == "gelu" else chain(*norm(-1))
    module = to_torch(model).double()
    images = pictures().double().requires_grad_(True)
    assert torch.autograd.gradcheck(module, images, eps=1e-6, atol=1e-7)
