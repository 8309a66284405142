"""Graphs as tools leave them behind: unsorted, with odd ranks, with odd outputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from onnxfr.errors import NotDifferentiable, UnreadableModel, UnsupportedModel
from onnxfr.models.admission import admit
from onnxfr.models.parity import certify
from onnxfr.models.wrapper import OnnxModel, load_model

Make = Callable[..., onnx.ModelProto]


def pictures(count: int = 5) -> NDArray[np.float32]:
    return np.random.default_rng(5).random((count, 3, 32, 24), dtype=np.float32)


def followed_by(net: onnx.ModelProto, *nodes: onnx.NodeProto, **constants: object) -> None:
    """Put nodes that lead from ``raw`` to ``feature`` behind a network."""
    net.graph.node[-1].output[0] = "raw"
    net.graph.node.extend(nodes)
    for name, value in constants.items():
        net.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))


def one_by_one(net: onnx.ModelProto) -> NDArray[np.float32]:
    """Unit rows of the vendor's own file, fed with one picture at a time."""
    session = onnxruntime.InferenceSession(net.SerializeToString())
    rows = np.stack([session.run(None, {"data": p[None]})[0].reshape(-1) for p in pictures()])
    unit: NDArray[np.float32] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


def served(net: onnx.ModelProto, folder: Path) -> OnnxModel:
    (folder / "vendor.onnx").write_bytes(net.SerializeToString())
    admit(folder / "vendor.onnx", folder / "model", preprocess="rgb,0-1")
    return load_model(folder / "model", threads=1)


def assert_serves(net: onnx.ModelProto, folder: Path, expected: NDArray[np.float32]) -> OnnxModel:
    model = served(net, folder)
    np.testing.assert_allclose(model.embed(pictures()), expected, atol=2e-6)
    torch_rows = model.embed_grad(torch.from_numpy(pictures())).detach().numpy()
    np.testing.assert_allclose(torch_rows, expected, atol=1e-5)
    return model


def reverse(graph: onnx.GraphProto) -> None:
    nodes = list(graph.node)[::-1]
    del graph.node[:]
    graph.node.extend(nodes)


def test_nodes_may_stand_in_any_order(make_vendor_net: Make, tmp_path: Path) -> None:
    """Converters to half precision append the casts of the picture at the end of the file."""
    net = make_vendor_net()
    expected = one_by_one(net)
    reverse(net.graph)
    model = assert_serves(net, tmp_path, expected)
    assert [repair.name for repair in model.card.repairs] == ["order"]


def test_branches_may_stand_before_what_they_read(make_vendor_net: Make, tmp_path: Path) -> None:
    net = make_vendor_net()
    branches = {
        f"{word}_branch": helper.make_graph(
            [helper.make_node(op, ["raw"], ["half"]), helper.make_node("Neg", ["half"], ["all"])],
            word,
            [],
            [helper.make_tensor_value_info("all", TensorProto.FLOAT, None)],
        )
        for word, op in (("then", "Tanh"), ("else", "Sigmoid"))
    }
    followed_by(net, helper.make_node("If", ["yes"], ["feature"], **branches), yes=True)
    expected = one_by_one(net)
    reverse(net.graph)
    assert_serves(net, tmp_path, expected)


def test_nodes_that_wait_for_each_other_are_damage(make_vendor_net: Make, tmp_path: Path) -> None:
    net = make_vendor_net()
    net.graph.node[0].input[0] = "r2"
    with pytest.raises(UnreadableModel, match=r"\(Conv\) waits for its own result"):
        served(net, tmp_path)
    twice = make_vendor_net()
    twice.graph.node.append(helper.make_node("Tanh", ["r1"], ["r2"]))
    with pytest.raises(UnreadableModel, match="two nodes compute 'r2'"):
        served(twice, tmp_path)


def test_a_batch_is_freed_around_single_numbers(make_vendor_net: Make, tmp_path: Path) -> None:
    """Quantised transformers compute scales without an axis beside the batch that was baked in."""
    net = make_vendor_net(baked=True)
    followed_by(
        net,
        helper.make_node("Shape", ["c1"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "place"], ["channels"]),
        helper.make_node("Cast", ["channels"], ["number"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["number", "front"], ["factor"]),
        helper.make_node("Mul", ["raw", "factor"], ["feature"]),
        place=np.int64(1),
        front=np.asarray([0]),
    )
    model = assert_serves(net, tmp_path, one_by_one(net))
    assert model.card.batch == "dynamic"


def test_stored_values_of_five_axes_have_no_layout(make_vendor_net: Make, tmp_path: Path) -> None:
    """Windows of attention come with biases of five axes, which torch cannot put channels last."""
    net = make_vendor_net()
    followed_by(
        net,
        helper.make_node("Reshape", ["raw", "apart"], ["windows"]),
        helper.make_node("Mul", ["windows", "biases"], ["scaled"]),
        helper.make_node("Reshape", ["scaled", "flat_again"], ["feature"]),
        apart=np.asarray([-1, 2, 4, 2, 4]),
        biases=np.random.default_rng(1).random((1, 2, 4, 2, 4), dtype=np.float32),
        flat_again=np.asarray([-1, 64]),
    )
    assert_serves(net, tmp_path, one_by_one(net))


@pytest.mark.parametrize("tail", [(), ("Identity",), ("Flatten",)])
@pytest.mark.parametrize("zero", [np.uint8(128), np.int8(-7)])
def test_a_quantised_embedding_is_counted_from_its_zero_point(
    zero: np.generic, tail: tuple[str, ...], make_vendor_net: Make, tmp_path: Path
) -> None:
    """Cosines of the bare whole numbers are near one for any two faces."""
    net = make_vendor_net()
    expected = one_by_one(net)
    last = "codes" if tail else "feature"
    nodes = [helper.make_node("QuantizeLinear", ["raw", "step", "zero"], [last])]
    nodes += [helper.make_node(op, ["codes"], ["feature"]) for op in tail]
    session = onnxruntime.InferenceSession(net.SerializeToString())
    step = np.float32(np.abs(session.run(None, {"data": pictures()})[0]).max() / 100)
    followed_by(net, *nodes, step=step, zero=zero)
    kind = TensorProto.UINT8 if zero.dtype == np.uint8 else TensorProto.INT8
    net.graph.output[0].type.tensor_type.elem_type = kind
    model = served(net, tmp_path)
    assert (model.embed(pictures()) * expected).sum(axis=1).min() > 0.98
    assert "zero-point" in [repair.name for repair in model.card.repairs]


@pytest.mark.parametrize("batch", [1, "N"])
def test_an_output_without_a_batch_gets_one(
    batch: int | str, make_vendor_net: Make, tmp_path: Path
) -> None:
    net = make_vendor_net(batch=batch)
    followed_by(net, helper.make_node("Squeeze", ["raw"], ["feature"]))
    del net.graph.output[0].type.tensor_type.shape.dim[:]
    net.graph.output[0].type.tensor_type.ClearField("shape")
    model = assert_serves(net, tmp_path, one_by_one(net))
    assert model.card.batch == "dynamic" and model.card.embedding_dim == 64


@pytest.mark.parametrize("op", ["Transpose", "Unsqueeze"])
def test_a_batch_on_another_axis_is_looped(op: str, make_vendor_net: Make, tmp_path: Path) -> None:
    """The second opinion, too, is asked for one picture at a time."""
    net = make_vendor_net()
    inputs = ["raw", "front"] if op == "Unsqueeze" else ["raw"]
    followed_by(net, helper.make_node(op, inputs, ["feature"]), front=np.asarray([0]))
    net.graph.output[0].type.tensor_type.ClearField("shape")
    model = assert_serves(net, tmp_path, one_by_one(net))
    assert model.card.batch == "loop"
    flags = {flag.name: flag.level for flag in certify(model).flags}
    assert flags.pop("loop") == "yellow" and set(flags.values()) == {"green"}


def test_a_graph_without_a_name_is_admitted(make_vendor_net: Make, tmp_path: Path) -> None:
    net = make_vendor_net()
    net.graph.name = ""
    assert_serves(net, tmp_path, one_by_one(net))


def test_what_torch_cannot_join_costs_the_gradient_only(
    make_vendor_net: Make, tmp_path: Path
) -> None:
    """onnxruntime passes over what is empty, whatever its other sizes."""
    net = make_vendor_net()
    nothing = np.zeros((1, 0), np.float32)
    followed_by(net, helper.make_node("Concat", ["raw", "e"], ["feature"], axis=1), e=nothing)
    model = served(net, tmp_path)
    np.testing.assert_allclose(model.embed(pictures()), one_by_one(net), atol=2e-6)
    assert not model.differentiable
    with pytest.raises(NotDifferentiable, match="for 2 pictures at once"):
        model.embed_grad(torch.from_numpy(pictures()))


def test_networks_that_compare_two_pictures_are_told_the_way(
    make_vendor_net: Make, tmp_path: Path
) -> None:
    net = make_vendor_net()
    other = helper.make_tensor_value_info("other", TensorProto.FLOAT, ["N", 3, 32, 24])
    net.graph.input.append(other)
    followed_by(net, helper.make_node("Sub", ["data", "other"], ["change"]))
    net.graph.node[0].input[0] = "change"
    net.graph.node[-2].output[0] = "feature"
    with pytest.raises(UnsupportedModel, match="embedding of one picture with --output"):
        served(net, tmp_path)


def test_layouts_of_one_processor_are_called_so(tmp_path: Path, make_vendor_net: Make) -> None:
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    onnxruntime.InferenceSession(make_vendor_net().SerializeToString(), options)
    net = onnx.load(tmp_path / "optimised.onnx")
    if not any(node.domain == "com.microsoft.nchwc" for node in net.graph.node):
        pytest.skip("onnxruntime has no blocked layout on this processor")
    model = served(net, tmp_path)
    np.testing.assert_allclose(model.embed(pictures()), one_by_one(net), atol=2e-6)
    with pytest.raises(NotDifferentiable, match="saved it for one kind of processor"):
        model.embed_grad(torch.from_numpy(pictures()))
