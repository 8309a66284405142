"""The rewrites for onnxruntime: exact where they act, hands off where they must not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxfr.models.rewrites import fix_weights, rewritten, split_prelu

CHANNELS = 16


def prelu_net(slope, *, opset=13, dtype=np.float32, slope_as="initializer"):
    rng = np.random.default_rng(3)
    weight = rng.normal(size=(CHANNELS, 3, 3, 3)).astype(dtype)
    elem = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [helper.make_node("Conv", ["image", "w"], ["c"], pads=[1, 1, 1, 1])]
    weights = [numpy_helper.from_array(weight, "w")]
    if slope_as == "initializer":
        weights.append(numpy_helper.from_array(slope, "s"))
    elif slope_as == "constant":
        nodes.append(
            helper.make_node("Constant", [], ["s"], value=numpy_helper.from_array(slope, "s"))
        )
    else:
        weights.append(numpy_helper.from_array(slope, "s0"))
        nodes.append(helper.make_node("Abs", ["s0"], ["s"]))
    nodes += [
        helper.make_node("PRelu", ["c", "s"], ["p"]),
        helper.make_node("Conv", ["p", "v"], ["embedding"]),
    ]
    back = rng.normal(size=(CHANNELS, CHANNELS, 1, 1)).astype(dtype)
    weights.append(numpy_helper.from_array(back, "v"))
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("image", elem, ["N", 3, 16, 16])],
        [helper.make_tensor_value_info("embedding", elem, ["N", CHANNELS, 16, 16])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def answer(model, images):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, {session.get_inputs()[0].name: images})[0]


def operators(model):
    return [node.op_type for node in model.graph.node]


def per_channel(*shape):
    return np.random.default_rng(5).uniform(-0.5, 1.5, shape).astype(np.float32)


@pytest.mark.parametrize("opset", [7, 9, 13, 18, 21])
@pytest.mark.parametrize("slope_as", ["initializer", "constant"])
@pytest.mark.parametrize(
    ("slope", "instead"),
    [
        (per_channel(CHANNELS, 1, 1), "Relu"),
        (per_channel(1, CHANNELS, 1, 1), "Relu"),
        (np.full((CHANNELS, 1, 1), 0.25, np.float32), "LeakyRelu"),
        (np.float32([0.1]), "LeakyRelu"),
        (np.float32([[[0.3]]]), "LeakyRelu"),
    ],
    ids=["c11", "1c11", "uniform", "one", "one-rank-3"],
)
def test_split_answers_with_the_same_bits(slope, instead, slope_as, opset):
    model = prelu_net(slope, opset=opset, slope_as=slope_as)
    images = np.random.default_rng(1).normal(size=(2, 3, 16, 16)).astype(np.float32)
    images[0, :, :4] = 0
    before = answer(model, images)
    assert split_prelu(model) == 1
    assert "PRelu" not in operators(model)
    assert instead in operators(model)
    onnx.checker.check_model(model, full_check=True)
    np.testing.assert_array_equal(answer(model, images), before)


@pytest.mark.parametrize(
    "model",
    [
        prelu_net(per_channel(CHANNELS, 1, 1).astype(np.float16), dtype=np.float16),
        prelu_net(per_channel(CHANNELS, 1, 1), slope_as="computed"),
        prelu_net(per_channel(16), opset=13),
        prelu_net(per_channel(CHANNELS, 16, 16)),
        prelu_net(per_channel(CHANNELS, 1, 1), opset=6),
    ],
    ids=["fp16", "computed", "per-column", "per-pixel", "opset-6"],
)
def test_what_cannot_be_split_is_left_alone(model):
    before = model.SerializeToString(deterministic=True)
    assert split_prelu(model) == 0
    assert model.SerializeToString(deterministic=True) == before


def test_an_overridable_slope_is_left_alone_until_weights_are_fixed():
    model = prelu_net(per_channel(CHANNELS, 1, 1))
    model.graph.input.append(
        helper.make_tensor_value_info("s", TensorProto.FLOAT, [CHANNELS, 1, 1])
    )
    assert split_prelu(model) == 0
    assert fix_weights(model) == 1
    assert split_prelu(model) == 1


def test_a_rewritten_copy_leaves_the_model_as_it_was():
    model = prelu_net(per_channel(CHANNELS, 1, 1))
    before = model.SerializeToString(deterministic=True)
    assert "PRelu" not in operators(rewritten(model))
    assert model.SerializeToString(deterministic=True) == before


def test_two_prelus_may_share_a_slope():
    model = prelu_net(per_channel(CHANNELS, 1, 1))
    model.graph.node[1].output[0] = "q"
    model.graph.node.insert(2, helper.make_node("PRelu", ["q", "s"], ["p"]))
    images = np.random.default_rng(1).normal(size=(2, 3, 16, 16)).astype(np.float32)
    before = answer(model, images)
    assert split_prelu(model) == 2
    np.testing.assert_array_equal(answer(model, images), before)


def test_fixed_weights_let_batch_normalisation_fold(tmp_path: Path):
    rng = np.random.default_rng(0)
    sizes = {"w": (4, 3, 1, 1), "scale": (4,), "bias": (4,), "mean": (4,), "var": (4,)}
    weights = [
        numpy_helper.from_array(rng.uniform(0.5, 1, size).astype(np.float32), name)
        for name, size in sizes.items()
    ]
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["image", "w"], ["c"]),
            helper.make_node("BatchNormalization", ["c", "scale", "bias", "mean", "var"], ["y"]),
        ],
        "old",
        [
            helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 8, 8]),
            *(helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in sizes.items()),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 8, 8])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=3)
    images = rng.random((1, 3, 8, 8), dtype=np.float32)
    before = answer(model, images)
    assert fix_weights(model) == len(sizes)
    assert [value.name for value in model.graph.input] == ["image"]
    onnx.checker.check_model(model, full_check=True)
    np.testing.assert_allclose(answer(model, images), before, rtol=1e-5)

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    assert "BatchNormalization" not in operators(onnx.load(tmp_path / "optimised.onnx"))


@pytest.mark.parametrize(
    "name", ["mobilefacenet_y1_from_mxnet.onnx", "mobilefacenet_xiaoccer_112x96.onnx"]
)
def test_real_networks_answer_the_same(shared_data: Path, name: str):
    path = shared_data / "models" / "onnx" / name
    model = onnx.load(path)
    height, width = (d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim[2:])
    shape = (2, 3, height, width)
    images = np.random.default_rng(2).uniform(0, 255, shape).astype(np.float32)
    before = answer(model, images)
    assert split_prelu(model) == 33
    after = answer(model, images)
    # Batch normalisation may fold at another place, hence an ulp or two of the largest value.
    assert np.abs(after - before).max() <= 2 * np.spacing(np.abs(before).max())
