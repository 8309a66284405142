"""Channels that are always zero: dropped where that is proven, kept wherever it is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxfr.models.dead_channels import drop_dead_channels

WIDE, DEAD = 32, 18
Arrays = dict[str, np.ndarray]


def weights(scale: float = 1e-4) -> Arrays:
    """Return a bottleneck of which 18 depthwise filters are nearly zero, their bias negative."""
    rng = np.random.default_rng(0)
    arrays = {
        "w0": rng.normal(size=(8, 3, 3, 3)),
        "w1": rng.normal(size=(WIDE, 8, 1, 1)),
        "b1": rng.normal(size=WIDE),
        "w2": rng.normal(size=(WIDE, 1, 3, 3)),
        "b2": rng.uniform(0.1, 1, WIDE),
        "w3": rng.normal(size=(8, WIDE, 1, 1)),
        "zero": np.zeros(()),
        "six": np.full((), 6.0),
    }
    arrays["w2"][:DEAD] *= scale
    arrays["b2"][:DEAD] = -0.05
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def bottleneck(arrays: Arrays, *extra: onnx.NodeProto, clip: bool = True) -> onnx.ModelProto:
    def rectify(value: str, out: str) -> onnx.NodeProto:
        inputs = [value, "zero", "six"] if clip else [value]
        return helper.make_node("Clip" if clip else "Relu", inputs, [out])

    nodes = [
        helper.make_node("Conv", ["image", "w0"], ["c0"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["c0", "w1", "b1"], ["c1"]),
        rectify("c1", "r1"),
        helper.make_node("Conv", ["r1", "w2", "b2"], ["c2"], pads=[1, 1, 1, 1], group=WIDE),
        rectify("c2", "r2"),
        helper.make_node("Conv", ["r2", "w3"], ["c3"]),
        helper.make_node("Add", ["c0", "c3"], ["y"]),
        *extra,
    ]
    outputs = [nodes[-1].output[0]] + (["y"] if extra else [])
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 3, 12, 12])],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", None, None, None])
            for name in outputs
        ],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def answers(model: onnx.ModelProto, images: np.ndarray) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, {session.get_inputs()[0].name: images}))


def shapes(model: onnx.ModelProto) -> dict[str, list[int]]:
    stored = {tensor.name: list(tensor.dims) for tensor in model.graph.initializer}
    return {
        node.output[0]: stored[node.input[1]] for node in model.graph.node if node.op_type == "Conv"
    }


@pytest.mark.parametrize("size", [1.0, 1e4], ids=["pixels", "huge"])
def test_a_whole_block_of_silent_channels_goes_and_no_answer_changes(size: float) -> None:
    model = bottleneck(weights())
    images = size * np.random.default_rng(1).normal(size=(3, 3, 12, 12)).astype(np.float32)
    before = answers(model, images)[0]
    assert drop_dead_channels(model) == 16
    onnx.checker.check_model(model, full_check=True)
    assert shapes(model) == {
        "c0": [8, 3, 3, 3],
        "c1": [16, 8, 1, 1],
        "c2": [16, 1, 3, 3],
        "c3": [8, 16, 1, 1],
    }
    after = answers(model, images)[0]
    assert np.abs(after - before).max() <= 4 * np.spacing(np.abs(before).max())
    assert drop_dead_channels(model) == 0


def test_weights_shared_with_another_layer_stay_whole() -> None:
    model = bottleneck(weights(), helper.make_node("Conv", ["y", "w1"], ["z"]))
    images = np.random.default_rng(1).normal(size=(2, 3, 12, 12)).astype(np.float32)
    before = answers(model, images)
    assert drop_dead_channels(model) == 16
    for old, new in zip(before, answers(model, images), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-5)


def _positive(arrays: Arrays) -> None:
    arrays["b2"][:DEAD] = 0.05


def _barely(arrays: Arrays) -> None:
    reach = 6 * np.maximum(arrays["w2"][:DEAD], 0).sum(axis=(1, 2, 3))
    arrays["b2"][:DEAD] = -reach


def _few(arrays: Arrays) -> None:
    arrays["b2"][: DEAD - 15] = 0.05


@pytest.mark.parametrize("change", [_positive, _barely, _few])
def test_what_is_not_proven_or_not_worth_it_stays(change: Any) -> None:
    arrays = weights()
    change(arrays)
    assert drop_dead_channels(bottleneck(arrays)) == 0


def test_unbounded_activations_prove_nothing() -> None:
    assert drop_dead_channels(bottleneck(weights(), clip=False)) == 0


@pytest.mark.parametrize("value", ["r1", "c1", "r2", "c2"])
def test_a_channel_that_someone_else_reads_stays(value: str) -> None:
    model = bottleneck(weights(), helper.make_node("Identity", [value], ["seen"]))
    before = model.SerializeToString(deterministic=True)
    assert drop_dead_channels(model) == 0
    assert model.SerializeToString(deterministic=True) == before


def test_a_weight_that_can_be_overridden_stays() -> None:
    model = bottleneck(weights())
    model.graph.input.append(helper.make_tensor_value_info("b2", TensorProto.FLOAT, [WIDE]))
    assert drop_dead_channels(model) == 0


@pytest.mark.parametrize("name", ["w1", "w2", "b2", "zero"])
def test_a_damaged_constant_is_left_to_onnxruntime(name: str) -> None:
    model = bottleneck(weights())
    damaged = next(tensor for tensor in model.graph.initializer if tensor.name == name)
    damaged.raw_data = damaged.raw_data[:-2]
    assert drop_dead_channels(model) == 0


def test_a_real_network_is_leaner_and_answers_the_same(shared_data: Path) -> None:
    model = onnx.load(shared_data / "models" / "onnx" / "mobilefacenet_foamliu.onnx")
    images = np.random.default_rng(2).normal(size=(1, 3, 112, 112)).astype(np.float32)
    before = answers(model, images)[0]
    assert drop_dead_channels(model) == 64
    after = answers(model, images)[0]
    assert np.abs(after - before).max() <= 16 * np.spacing(np.abs(before).max())
