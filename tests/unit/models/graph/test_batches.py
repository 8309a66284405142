"""What the converter concludes from trial batches, and what a fixed batch allows."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from onnxfr.models.graph import to_torch

f32, i64 = np.float32, np.int64


def model_of(
    *nodes: onnx.NodeProto, batch: int | str, shape: tuple[int, ...] = (3, 8, 8), **stored: Any
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [batch, *shape])],
        [helper.make_empty_tensor_value_info(nodes[-1].output[0])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in stored.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def both(model: onnx.ModelProto, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Answer of the converted network and of onnxruntime."""
    sizes = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim[1:]]
    image = np.random.default_rng(0).normal(size=(batch, *sizes)).astype(f32)
    (want,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"image": image})
    return to_torch(model)(torch.from_numpy(image)).numpy(), want


@pytest.mark.parametrize("batch", [1, 2])
def test_a_fixed_batch_is_the_only_one_tried(batch: int) -> None:
    model = model_of(
        helper.make_node("Resize", ["image", "", "", "sizes"], ["r"], mode="linear"),
        helper.make_node("Reshape", ["r", "flat"], ["y"]),
        batch=batch,
        sizes=i64([batch, 3, 4, 4]),
        flat=i64([batch, -1]),
    )
    got, want = both(model, batch)
    np.testing.assert_allclose(got, want, atol=1e-6)
    image = torch.rand(batch, 3, 8, 8, requires_grad=True)
    assert torch.autograd.grad(to_torch(model)(image).sum(), image)[0].abs().max() > 0


@pytest.mark.parametrize("batch", [1, 8, 16, 50])
@pytest.mark.parametrize("late", ["Div", "Min"])
def test_a_number_that_changes_only_in_large_batches_is_not_folded(late: str, batch: int) -> None:
    model = model_of(
        helper.make_node("Shape", ["image"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Div", ["n", "eight"], ["d"]),
        helper.make_node(late, ["d", "three"], ["m"]),
        helper.make_node("Cast", ["m"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["image", "f"], ["y"]),
        batch="N",
        zero=i64(0),
        eight=i64(8),
        three=i64(3),
    )
    got, want = both(model, batch)
    np.testing.assert_allclose(got, want, atol=1e-6)


def test_a_constant_repeated_over_the_batch_is_not_unfolded_for_large_trials() -> None:
    """Some thousand numbers per picture must neither fill the memory nor count as hostile."""
    model = model_of(
        helper.make_node("Shape", ["image"], ["s"]),
        helper.make_node("ConstantOfShape", ["s"], ["c"]),
        helper.make_node("Add", ["c", "one"], ["o"]),
        helper.make_node("Add", ["image", "o"], ["y"]),
        batch="N",
        shape=(64, 80, 80),
        one=f32(1),
    )
    got, want = both(model, 2)
    np.testing.assert_allclose(got, want, atol=1e-6)
