"""onnx2torch as a second opinion: frozen, optional, and never a way to run a file's strings."""

from __future__ import annotations

import builtins
import importlib.util
import sys

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from onnxfr.models.graph import to_torch
from onnxfr.models.second_opinion import second_opinion

needs_onnx2torch = pytest.mark.skipif(
    importlib.util.find_spec("onnx2torch") is None, reason="onnx2torch is not installed"
)


def network(operator: str = "Relu", name: str = "last", opset: int = 13) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.normal(size=(4, 3, 3, 3)),
        "gamma": rng.uniform(0.5, 2, 4),
        "beta": rng.normal(size=4),
        "mean": rng.normal(size=4),
        "var": rng.uniform(0.5, 2, 4),
    }
    nodes = [
        helper.make_node("Conv", ["image", "w"], ["c"], name="conv"),
        helper.make_node("BatchNormalization", ["c", "gamma", "beta", "mean", "var"], ["b"]),
        helper.make_node(operator, ["b"], ["y"], name=name),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(v.astype(np.float32), k) for k, v in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


@needs_onnx2torch
def test_agrees_with_our_converter_and_is_frozen() -> None:
    model = network()
    opinion = second_opinion(model)
    assert opinion.module is not None
    assert not opinion.module.training
    assert not any(p.requires_grad for p in opinion.module.parameters())
    image = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(opinion.module(image), to_torch(model)(image), atol=1e-5, rtol=1e-5)


@needs_onnx2torch
def test_weights_that_the_exporter_stored_once_are_no_obstacle() -> None:
    model = network()
    model.graph.node.insert(0, helper.make_node("Identity", ["beta"], ["handed-on"]))
    model.graph.node.insert(1, helper.make_node("Identity", ["handed-on"], ["again"]))
    model.graph.node[3].input[3] = "again"
    opinion = second_opinion(model)
    assert opinion.module is not None, opinion.why
    image = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(opinion.module(image), to_torch(model)(image), atol=1e-5, rtol=1e-5)
    assert model.graph.node[0].op_type == "Identity"


@needs_onnx2torch
def test_says_why_it_cannot_convert() -> None:
    opinion = second_opinion(network("Mish", opset=18))
    assert opinion.module is None
    assert "Mish" in opinion.why


def test_says_that_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert second_opinion(network()).why == "onnx2torch is not installed"


@needs_onnx2torch
def test_a_node_name_is_never_run_as_code(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    monkeypatch.setattr(builtins, "spy", ran.append, raising=False)
    model = network(name='training"), spy("ran"), getattr(self, "training')
    theirs = second_opinion(model).module
    assert theirs is not None
    for converted in (theirs, to_torch(model)):
        converted(torch.zeros(1, 3, 8, 8))
    assert ran == []


@needs_onnx2torch
def test_leaves_no_stand_in_behind() -> None:
    second_opinion(network())
    absent = importlib.util.find_spec("torchvision") is None
    assert not absent or "torchvision" not in sys.modules
