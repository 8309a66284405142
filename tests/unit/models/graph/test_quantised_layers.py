"""Layers between Quantize and Dequantize: the whole numbers of onnxruntime's integer kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from onnxfr.models.graph import to_torch

f32, u8, i32 = np.float32, np.uint8, np.int32
rng = np.random.default_rng(3)


def qdq(
    operator: str,
    weights: Any,
    scale: Any,
    bias: Any,
    shape: list[int],
    *,
    bias_step: float = 1.0,
    along: int = 0,
) -> onnx.ModelProto:
    """Image -> Q -> DQ -> layer -> Q -> DQ, weights and bias behind a DQ of their own."""
    axis = {"axis": along} if np.ndim(scale) else {}
    stored = {
        "xs": f32(0.01),
        "xz": u8(100),
        "w": weights,
        "ws": scale,
        "wz": np.full(np.shape(scale), 120, u8),
        "ys": f32(0.2),
        "yz": u8(90),
    }
    inputs = ["x", "wf"]
    nodes = [
        helper.make_node("QuantizeLinear", ["image", "xs", "xz"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["x"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], **axis),
    ]
    if bias is not None:
        stored |= {"b": bias, "bs": f32(0.01 * bias_step) * np.asarray(scale, f32)}
        nodes.append(helper.make_node("DequantizeLinear", ["b", "bs"], ["bf"], **axis))
        inputs.append("bf")
    nodes += [
        helper.make_node(operator, inputs, ["y"]),
        helper.make_node("QuantizeLinear", ["y", "ys", "yz"], ["yq"]),
        helper.make_node("DequantizeLinear", ["yq", "ys", "yz"], ["out"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", *shape])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in stored.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


CASES = {
    "conv": qdq("Conv", rng.integers(0, 255, (8, 4, 3, 3), u8), f32(0.004), None, [4, 12, 12]),
    "conv per channel": qdq(
        "Conv",
        rng.integers(0, 255, (8, 4, 3, 3), u8),
        rng.uniform(0.003, 0.006, 8).astype(f32),
        rng.integers(-900, 900, 8).astype(i32),
        [4, 12, 12],
    ),
    "matmul": qdq("MatMul", rng.integers(0, 255, (32, 16), u8), f32(0.004), None, [32]),
    "gemm": qdq(
        "Gemm",
        rng.integers(0, 255, (32, 16), u8),
        f32(0.004),
        rng.integers(-900, 900, 16).astype(i32),
        [32],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_same_whole_numbers_as_the_integer_kernel(name: str) -> None:
    model = CASES[name]
    module = to_torch(model)
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim[1:]]
    image = rng.uniform(-1, 1.5, (64, *shape)).astype(f32)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (want,) = session.run(None, {"image": image})
    steps = np.abs(module(torch.from_numpy(image)).numpy() - want) / 0.2
    assert steps.max() < 1.001
    assert (steps > 0.5).mean() < 1e-4


ODD_SCALES = {
    "conv bias": qdq(
        "Conv",
        rng.integers(0, 255, (8, 4, 3, 3), u8),
        f32(0.004),
        rng.integers(-90, 90, 8).astype(i32),
        [4, 12, 12],
        bias_step=500,
    ),
    "gemm bias": qdq(
        "Gemm",
        rng.integers(0, 255, (32, 16), u8),
        f32(0.004),
        rng.integers(-90, 90, 16).astype(i32),
        [32],
        bias_step=500,
    ),
    "conv per input channel": qdq(
        "Conv",
        rng.integers(0, 255, (4, 4, 3, 3), u8),
        rng.uniform(0.001, 0.009, 4).astype(f32),
        None,
        [4, 12, 12],
        along=1,
    ),
}


@pytest.mark.parametrize("name", ODD_SCALES)
def test_whole_numbers_of_different_worth_are_not_added(name: str) -> None:
    """Against the graph as written: onnxruntime's own merged Gemm ignores the bias's scale."""
    model = ODD_SCALES[name]
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim[1:]]
    image = rng.uniform(-1, 1.5, (64, *shape)).astype(f32)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    (want,) = session.run(None, {"image": image})
    steps = np.abs(to_torch(model)(torch.from_numpy(image)).numpy() - want) / 0.2
    assert steps.max() < 1.001
    assert (steps > 0.5).mean() < 1e-2


@pytest.mark.parametrize("name", CASES)
def test_gradient_is_that_of_the_layer_without_rounding(name: str) -> None:
    """Inside the range, straight-through rounding leaves the gradient of the real layer."""
    model = CASES[name]
    module = to_torch(model).double()
    real = without_rounding(model).double()
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim[1:]]
    image = 0.1 * torch.rand(2, *shape, generator=torch.Generator().manual_seed(0)).double()
    slopes = []
    for network in (module, real):
        x = image.clone().requires_grad_()
        slopes.append(torch.autograd.grad(network(x).sum(), x)[0])
    torch.testing.assert_close(slopes[0], slopes[1], atol=1e-6, rtol=1e-5)


def without_rounding(model: onnx.ModelProto) -> torch.fx.GraphModule:
    """The same layer fed by the image itself."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    kept = [node for node in copy.graph.node if node.op_type != "QuantizeLinear"]
    kept = [node for node in kept if node.output[0] not in ("x", "out")]
    for node in kept:
        if node.output[0] == "y":
            node.input[0], node.output[0] = "image", "out"
    del copy.graph.node[:]
    copy.graph.node.extend(kept)
    return to_torch(copy)
