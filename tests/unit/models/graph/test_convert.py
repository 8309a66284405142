"""The converter as a whole: frozen, batch-free, lean, and deaf to hostile files."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from onnxfr.errors import (
    OnnxfrError,
    UnreadableModel,
    UnsafeFile,
    UnsupportedModel,
    UnsupportedOperator,
)
from onnxfr.models.graph import to_torch

f32, i64 = np.float32, np.int64


def model_of(
    *nodes: onnx.NodeProto,
    opset: int = 17,
    shape: tuple[int | str, ...] = ("N", 3, 8, 8),
    functions: tuple[onnx.FunctionProto, ...] = (),
    **stored: Any,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, shape)],
        [helper.make_empty_tensor_value_info(nodes[-1].output[0])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in stored.items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("local", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=9)


def node(operator: str, inputs: list[str], output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(operator, inputs, [output], name=f"the {operator}", **attributes)


def conv_bn() -> onnx.ModelProto:
    rng = np.random.default_rng(1)
    return model_of(
        node("Conv", ["image", "w"], "c", pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c", "g", "b", "m", "v"], "n"),
        node("Dropout", ["n"], "d"),
        node("Flatten", ["d"], "y"),
        w=rng.normal(size=(4, 3, 3, 3)).astype(f32),
        g=rng.uniform(0.5, 2, 4).astype(f32),
        b=rng.normal(size=4).astype(f32),
        m=rng.normal(size=4).astype(f32),
        v=rng.uniform(0.5, 2, 4).astype(f32),
    )


def images(batch: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.rand(batch, 3, 8, 8, generator=torch.Generator().manual_seed(batch), dtype=dtype)


def calls(module: torch.fx.GraphModule) -> list[str]:
    return [str(n.target) for n in module.graph.nodes if n.op == "call_function"]


def test_training_mode_changes_nothing() -> None:
    module = to_torch(conv_bn())
    before = {name: value.clone() for name, value in module.state_dict().items()}
    want = module(images(4))
    module.train()
    assert torch.equal(module(images(4)), want)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_nothing_is_trainable() -> None:
    module = to_torch(conv_bn())
    assert list(module.parameters()) == []
    assert not any(value.requires_grad for value in module.buffers())


def test_batch_normalisation_vanishes_into_the_convolution() -> None:
    module = to_torch(conv_bn())
    assert len(calls(module)) == 3  # convolution, batch size, reshape
    stored = {
        i.name: torch.from_numpy(numpy_helper.to_array(i).copy())
        for i in conv_bn().graph.initializer
    }
    plain = torch.conv2d(images(3), stored["w"], padding=1)
    want = torch.nn.functional.batch_norm(
        plain, stored["m"], stored["v"], stored["g"], stored["b"], False, 0.0, 1e-5
    )
    torch.testing.assert_close(module(images(3)), want.flatten(1), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("batch", [0, 1, 2, 32])
def test_any_batch(batch: int) -> None:
    rows = to_torch(conv_bn())(images(batch))
    assert rows.shape == (batch, 256)


def test_rows_do_not_depend_on_the_batch() -> None:
    module = to_torch(conv_bn()).double()
    x = images(5, torch.float64)
    alone = torch.cat([module(row[None]) for row in x])
    torch.testing.assert_close(module(x), alone, atol=1e-12, rtol=0)


def test_double_is_a_float64_function() -> None:
    module = to_torch(conv_bn()).double()
    x = images(1, torch.float64).requires_grad_()
    assert module(x).dtype == torch.float64
    assert torch.autograd.gradcheck(module, x, fast_mode=True)


def test_shape_subgraph_leaves_no_trace() -> None:
    module = to_torch(
        model_of(
            node("Shape", ["image"], "s"),
            node("Gather", ["s", "zero"], "n"),
            node("Unsqueeze", ["n", "axes"], "n1"),
            node("Concat", ["n1", "rest"], "target", axis=0),
            node("Reshape", ["image", "target"], "y"),
            zero=i64(0),
            axes=i64([0]),
            rest=i64([3, -1]),
        )
    )
    assert len(calls(module)) == 2  # batch size, reshape
    assert module(images(6)).shape == (6, 3, 64)


def test_batch_written_into_the_file_still_works_for_that_batch() -> None:
    module = to_torch(
        model_of(
            node("Reshape", ["image", "target"], "r"),
            node("Relu", ["r"], "y"),
            target=i64([1, 3, 64]),
        )
    )
    assert module(images(1)).shape == (1, 3, 64)
    with pytest.raises(RuntimeError):
        module(images(2))


def test_input_of_unknown_size() -> None:
    parts = (
        node("Shape", ["image"], "s"),
        node("Slice", ["s", "zero", "two"], "front"),
        node("Concat", ["front", "rest"], "target", axis=0),
        node("Reshape", ["image", "target"], "y"),
    )
    stored = {"zero": i64([0]), "two": i64([2]), "rest": i64([-1])}
    module = to_torch(model_of(*parts, shape=("N", 3, "H", "W"), **stored))
    assert module(torch.zeros(2, 3, 5, 7)).shape == (2, 3, 35)


def branches(condition: str) -> onnx.NodeProto:
    graphs = {}
    for name, operator in (("then_branch", "Neg"), ("else_branch", "Abs")):
        inner = helper.make_node(operator, ["image"], ["out"])
        out = helper.make_empty_tensor_value_info("out")
        graphs[name] = helper.make_graph([inner], name, [], [out])
    return node("If", [condition], "y", **graphs)


def test_branch_on_a_shape_is_decided_at_conversion() -> None:
    parts = (
        node("Shape", ["image"], "s"),
        node("Gather", ["s", "one"], "channels"),
        node("Equal", ["channels", "three"], "is3"),
        branches("is3"),
    )
    module = to_torch(model_of(*parts, one=i64(1), three=i64(3)))
    assert torch.equal(module(images(2)), -images(2))


def test_branch_on_pixels_is_refused() -> None:
    parts = (
        node("ReduceMax", ["image"], "top", keepdims=0),
        node("Greater", ["top", "half"], "bright"),
        branches("bright"),
    )
    with pytest.raises(UnsupportedOperator, match="depends on the image"):
        to_torch(model_of(*parts, half=f32(0.5)))


@pytest.mark.parametrize("operator", ["Loop", "Scan", "RandomNormalLike", "Nonsense"])
def test_refusal_names_operator_version_and_node(operator: str) -> None:
    with pytest.raises(UnsupportedOperator) as caught:
        to_torch(model_of(node(operator, ["image"], "y")))
    error = caught.value
    assert (error.operator, error.version, error.node) == (operator, 17, f"the {operator}")


def test_older_than_we_know() -> None:
    with pytest.raises(UnsupportedOperator, match="known from version 7 on"):
        to_torch(model_of(node("Add", ["image", "image"], "y"), opset=6))


def test_local_function_is_inlined() -> None:
    body = [helper.make_node("Relu", ["a"], ["t"]), helper.make_node("Neg", ["t"], ["b"])]
    opsets = [helper.make_opsetid("", 17)]
    function = helper.make_function("local", "NegRelu", ["a"], ["b"], body, opsets)
    call = helper.make_node("NegRelu", ["image"], ["y"], domain="local")
    module = to_torch(model_of(call, functions=(function,)))
    assert torch.equal(module(images(2) - 0.5), -torch.relu(images(2) - 0.5))


def giant(operator: str, *inputs: str, **stored: Any) -> onnx.ModelProto:
    return model_of(
        node(operator, list(inputs), "big"), node("Add", ["image", "big"], "y"), **stored
    )


@pytest.mark.parametrize(
    "model",
    [
        giant("ConstantOfShape", "size", size=i64([10**6, 10**6])),
        giant("Tile", "one", "size", one=np.ones((1, 1), f32), size=i64([10**6, 10**6])),
        giant("Expand", "one", "size", one=np.ones((1, 1), f32), size=i64([10**6, 10**6])),
        giant("Pad", "one", "size", one=np.ones((1, 1), f32), size=i64([0, 0, 10**6, 10**6])),
        giant("MatMul", "a", "b", a=np.ones((10**5, 1), f32), b=np.ones((1, 10**5), f32)),
        giant("Range", "a", "b", "c", a=i64(0), b=i64(10**13), c=i64(1)),
    ],
    ids=["ConstantOfShape", "Tile", "Expand", "Pad", "MatMul", "Range"],
)
def test_a_few_bytes_never_unfold_into_gigabytes(model: onnx.ModelProto) -> None:
    with pytest.raises(UnsafeFile, match="unfolds into"):
        to_torch(model)


def test_external_data_is_not_followed() -> None:
    model = model_of(node("Add", ["image", "w"], "y"), w=np.ones((8,), f32))
    tensor = model.graph.initializer[0]
    onnx.external_data_helper.set_external_data(tensor, "/etc/passwd")
    tensor.ClearField("raw_data")
    with pytest.raises(UnsafeFile, match="external"):
        to_torch(model)


def short_tensor() -> onnx.ModelProto:
    model = model_of(node("Add", ["image", "w"], "y"), w=np.ones((8,), f32))
    model.graph.initializer[0].dims[0] = 2**31
    return model


@pytest.mark.parametrize(
    ("model", "error"),
    [
        (short_tensor(), UnreadableModel),
        (model_of(node("Add", ["image", "nowhere"], "y")), UnreadableModel),
        (model_of(node("Conv", ["image"], "y")), UnreadableModel),
        (model_of(node("Transpose", ["image"], "y", perm="abc")), UnreadableModel),
        (model_of(node("Softmax", ["image"], "y", axis=9)), OnnxfrError),
        (model_of(node("Concat", ["image", "w"], "y", axis=9), w=np.ones((8,), f32)), OnnxfrError),
        (model_of(node("Pad", ["image", "p"], "y", mode="x'y"), p=i64([0] * 8)), OnnxfrError),
        (model_of(node("Einsum", ["image"], "y", equation="i'+1")), UnsupportedOperator),
        (model_of(node("Relu", ["z"], "y"), node("Relu", ["image"], "z")), UnreadableModel),
    ],
)
def test_a_broken_graph_gives_one_typed_error(
    model: onnx.ModelProto, error: type[OnnxfrError]
) -> None:
    with pytest.raises(error):
        to_torch(model)


def test_two_inputs_are_refused() -> None:
    model = model_of(node("Relu", ["image"], "y"))
    model.graph.input.append(helper.make_tensor_value_info("extra", TensorProto.FLOAT, [1]))
    with pytest.raises(UnsupportedModel, match="2 inputs"):
        to_torch(model)


def test_generated_code_holds_no_name_of_the_file() -> None:
    evil = "evil'); import os  #"
    model = model_of(node("Relu", ["image"], evil), node("Neg", [evil], "y"))
    model.graph.node[0].name = evil
    assert "evil" not in to_torch(model).code
