"""Corners of operators that need a batch, or an answer, that the contract of operators has not."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from onnxfr.errors import UnsupportedOperator
from onnxfr.models.graph import to_torch

rng = np.random.default_rng(2)


def model_of(node: onnx.NodeProto, shape: list[int | str], **stored: Any) -> onnx.ModelProto:
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, shape)],
        [helper.make_empty_tensor_value_info(node.output[0])],
        [numpy_helper.from_array(value, name) for name, value in stored.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def test_a_bias_per_row_of_the_batch_is_not_one_per_unit() -> None:
    model = model_of(
        helper.make_node("Gemm", ["image", "w", "b"], ["y"]),
        ["N", 4],
        w=rng.normal(size=(4, 2)).astype(np.float32),
        b=rng.normal(size=(2, 1)).astype(np.float32),
    )
    image = rng.normal(size=(2, 4)).astype(np.float32)
    (want,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"image": image})
    got = to_torch(model)(torch.from_numpy(image)).numpy()
    np.testing.assert_allclose(got, want, atol=1e-6)


def test_windows_over_what_was_cut_off_are_refused() -> None:
    """Onnxruntime counts them in a way of its own; a wrong mean would be worse than none."""
    attributes = {"kernel_shape": [2], "strides": [3], "dilations": [2], "ceil_mode": 1}
    node = helper.make_node("AveragePool", ["image"], ["y"], auto_pad="SAME_LOWER", **attributes)
    with pytest.raises(UnsupportedOperator, match="cuts off"):
        to_torch(model_of(node, ["N", 3, 9]))
