"""Convolutions of one pixel under another dilation: the same function, another kernel."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch.profiler import ProfilerActivity, profile

from onnxfr.models.graph import to_torch
from onnxfr.models.graph.pointwise import spread_pointwise


def network() -> torch.fx.GraphModule:
    """Return three convolutions of one pixel (one strided, one padded) around one of nine."""
    rng = np.random.default_rng(0)
    shapes = {"a": (8, 3, 1, 1), "b": (8, 8, 3, 3), "c": (16, 8, 1, 1), "d": (4, 16, 1, 1)}
    stored = {k: rng.normal(size=shape).astype(np.float32) for k, shape in shapes.items()}
    nodes = [
        helper.make_node("Conv", ["image", "a"], ["x"]),
        helper.make_node("Conv", ["x", "b"], ["y"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["y", "c"], ["z"], strides=[2, 2]),
        helper.make_node("Conv", ["z", "d"], ["map"], pads=[1, 1, 1, 1]),
        helper.make_node("Flatten", ["map"], ["out"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 3, 9, 7])],
        [helper.make_empty_tensor_value_info("out")],
        [numpy_helper.from_array(value, name) for name, value in stored.items()],
    )
    return to_torch(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]))


def step(module: torch.nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    image = torch.rand(3, 3, 9, 7, generator=torch.Generator().manual_seed(1)).requires_grad_()
    answer = module(image)
    return answer.detach(), torch.autograd.grad(answer.square().sum(), image)[0]


@pytest.fixture
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_spreading_changes_no_answer_and_no_gradient() -> None:
    module = network()
    answer, slope = step(module)
    assert spread_pointwise(module, 2) == 3
    spread_answer, spread_slope = step(module)
    torch.testing.assert_close(spread_answer, answer, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(spread_slope, slope, rtol=1e-5, atol=1e-4)
    spread_pointwise(module, 1)
    for found, kept in zip(step(module), (answer, slope), strict=True):
        assert torch.equal(found, kept)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
def test_spreading_is_what_sends_them_to_onednn() -> None:
    module = network()

    def slow_kernels() -> int:
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            step(module)
        return sum(entry.count for entry in seen.key_averages() if "slow_conv" in entry.key)

    spread_pointwise(module, 2)
    assert slow_kernels() == 0
