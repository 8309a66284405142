"""Vendor files in every dress become the same normal form, and the same function."""

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

from onnxfr.errors import AmbiguousPreprocessing, OnnxfrError, SpecError, UnsupportedModel
from onnxfr.models.admission import Admission, admit
from onnxfr.models.card import read_card
from onnxfr.models.parity import certify
from onnxfr.models.preprocessing import parse_preprocessing
from onnxfr.models.wrapper import load_model

Make = Callable[..., onnx.ModelProto]
SIZE = (32, 24)
NEWEST = onnx.defs.onnx_opset_version()


def pictures(count: int = 5, size: tuple[int, int] = SIZE) -> NDArray[np.float32]:
    levels = np.random.default_rng(5).integers(0, 256, (count, 3, *size))
    return (levels / np.float32(255)).astype(np.float32)


def by_hand(
    model: onnx.ModelProto, preprocess: str, images: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Feed the vendor's own file one picture at a time, preprocessed in NumPy."""
    readable = onnx.ModelProto()
    readable.CopyFrom(model)
    readable.opset_import[0].version = min(model.opset_import[0].version, 25)
    session = onnxruntime.InferenceSession(readable.SerializeToString())
    info = session.get_inputs()[0]
    kinds = {"tensor(float)": "f4", "tensor(float16)": "f2", "tensor(uint8)": "u1"}
    prepared = parse_preprocessing(preprocess).apply(images)
    if "uint8" in info.type:
        prepared = np.rint(prepared)
    rows = [
        session.run(None, {info.name: prepared[k : k + 1].astype(kinds[info.type])})[0].reshape(-1)
        for k in range(len(images))
    ]
    stacked = np.stack(rows).astype(np.float32)
    return stacked / np.linalg.norm(stacked, axis=1, keepdims=True)


def admitted(model: onnx.ModelProto, folder: Path, preprocess: str) -> Admission:
    path = folder / "vendor.onnx"
    path.write_bytes(model.SerializeToString())
    return admit(path, folder / "model", preprocess=preprocess)


def assert_same_function(
    model: onnx.ModelProto, folder: Path, preprocess: str, atol: float = 2e-6
) -> Admission:
    result = admitted(model, folder, preprocess)
    loaded = load_model(folder / "model", threads=1)
    expected = by_hand(model, preprocess, pictures())
    np.testing.assert_allclose(loaded.embed(pictures()), expected, atol=atol)
    with torch.no_grad():
        torch_rows = loaded.embed_grad(torch.from_numpy(pictures())).numpy()
    np.testing.assert_allclose(torch_rows, expected, atol=max(atol, 1e-5))
    return result


@pytest.mark.parametrize("opset", [7, 8, 9, 10, 11, 12, 13, 15, 17, 18, 20, 21, 22, 25, NEWEST])
@pytest.mark.parametrize("preprocess", ["bgr,whiten", "rgb,imagenet"])
def test_every_opset(opset: int, preprocess: str, make_vendor_net: Make, tmp_path: Path) -> None:
    assert_same_function(make_vendor_net(opset=opset), tmp_path, preprocess)


@pytest.mark.parametrize("color", ["rgb", "bgr"])
@pytest.mark.parametrize("scaling", ["0-255", "0-1", "pm1", "pm1-128", "imagenet", "whiten"])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_every_preprocessing(
    color: str, scaling: str, layout: str, make_vendor_net: Make, tmp_path: Path
) -> None:
    words = f"{color},{scaling},{layout}"
    assert_same_function(make_vendor_net(layout=layout), tmp_path, words, atol=5e-6)


def test_custom_mean_and_std(make_vendor_net: Make, tmp_path: Path) -> None:
    words = "bgr,mean=0.4/0.5/0.6,std=0.2/0.3/0.4"
    assert_same_function(make_vendor_net(), tmp_path, words)


def test_half_precision(make_vendor_net: Make, tmp_path: Path) -> None:
    model = make_vendor_net(elem_type=TensorProto.FLOAT16)
    result = assert_same_function(model, tmp_path, "rgb,pm1", atol=3e-3)
    assert result.card.precision == "fp16"


def test_byte_input(make_vendor_net: Make, tmp_path: Path) -> None:
    model = make_vendor_net(elem_type=TensorProto.UINT8)
    assert_same_function(model, tmp_path, "rgb,0-255")
    variable = torch.from_numpy(pictures(1)).requires_grad_(True)
    load_model(tmp_path / "model").embed_grad(variable)[:, 0].sum().backward()
    assert variable.grad is not None and variable.grad.abs().sum() > 0


def test_initializers_among_the_inputs(make_vendor_net: Make, tmp_path: Path) -> None:
    result = assert_same_function(
        make_vendor_net(initializers_as_inputs=True, opset=8), tmp_path, "rgb,pm1"
    )
    assert [repair.name for repair in result.card.repairs] == ["initializers-as-inputs"]


@pytest.mark.parametrize("batch", [1, "None", "N", None])
def test_declared_batches(batch: int | str | None, make_vendor_net: Make, tmp_path: Path) -> None:
    result = assert_same_function(make_vendor_net(batch=batch), tmp_path, "rgb,pm1")
    assert result.card.batch == "dynamic"


@pytest.mark.parametrize("batch", [1, "N"])
def test_batch_baked_into_a_reshape(
    batch: int | str, make_vendor_net: Make, tmp_path: Path
) -> None:
    result = assert_same_function(make_vendor_net(batch=batch, baked=True), tmp_path, "rgb,pm1")
    repair = result.card.repairs[-1]
    assert repair.name == "batch-constants" and repair.max_abs is not None
    assert repair.max_abs <= 1e-5


def test_fixed_batch_of_four(make_vendor_net: Make, tmp_path: Path) -> None:
    model = make_vendor_net(batch=4)
    result = admitted(model, tmp_path, "rgb,pm1")
    open_batch = make_vendor_net(batch="N")
    expected = by_hand(open_batch, "rgb,pm1", pictures())
    np.testing.assert_allclose(
        load_model(tmp_path / "model").embed(pictures()), expected, atol=2e-6
    )
    assert result.card.repairs[-1].name == "batch"


class Transformer(torch.nn.Module):
    """Attention written the way exporters bake a batch into: class token, (L, B*h, d) reshapes."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = torch.nn.Conv2d(3, 32, 8, 8)
        self.token = torch.nn.Parameter(torch.randn(1, 1, 32))
        self.qkv = torch.nn.Linear(32, 96)
        self.head = torch.nn.Linear(32, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        batch, length = int(x.shape[0]), int(x.shape[1]) + 1
        x = torch.cat([self.token.expand(batch, -1, -1), x], dim=1).transpose(0, 1)
        q, k, v = self.qkv(x).reshape(length, batch * 4, 24).transpose(0, 1).chunk(3, dim=-1)
        mixed = torch.softmax(q @ k.transpose(1, 2), dim=-1) @ v
        x = mixed.transpose(0, 1).reshape(length, batch, 32)
        return self.head(x[0])


def test_transformer_traced_with_one_picture(tmp_path: Path) -> None:
    torch.manual_seed(0)
    path = tmp_path / "traced.onnx"
    torch.onnx.export(
        Transformer().eval(), (torch.rand(1, 3, *SIZE),), str(path), dynamo=False, opset_version=14
    )
    result = assert_same_function(onnx.load(path), tmp_path, "rgb,pm1", atol=1e-5)
    assert result.card.batch == "dynamic"
    assert result.card.repairs[-1].name == "batch-constants"


def test_a_batch_that_cannot_be_freed_is_looped(make_vendor_net: Make, tmp_path: Path) -> None:
    """Centre over the batch axis: no repair can make rows independent, so the engines loop."""
    model = make_vendor_net()
    model.graph.node[-1].output[0] = "raw"
    ones = numpy_helper.from_array(np.ones((1, 64), np.float32), "ones")
    model.graph.initializer.append(ones)
    model.graph.node.append(helper.make_node("ReduceMax", ["raw"], ["top"], axes=[0], keepdims=1))
    model.graph.node.append(helper.make_node("Sub", ["top", "ones"], ["feature"]))
    result = assert_same_function(model, tmp_path, "rgb,pm1")
    assert result.card.batch == "loop"
    certificate = certify(load_model(tmp_path / "model"))
    assert "loop" in [flag.name for flag in certificate.flags]


def test_several_outputs(make_vendor_net: Make, tmp_path: Path) -> None:
    model = make_vendor_net()
    model.graph.node.append(helper.make_node("ReduceL2", ["feature"], ["norm"], axes=[1]))
    kind = helper.make_tensor_value_info("norm", TensorProto.FLOAT, ["N", 1])
    model.graph.output.insert(0, kind)
    result = admitted(model, tmp_path, "rgb,pm1")
    assert result.output.name == "feature" and "norm" in result.output.reason


def test_training_switch_is_fixed_to_inference(make_vendor_net: Make, tmp_path: Path) -> None:
    model = make_vendor_net()
    model.graph.input.append(helper.make_tensor_value_info("phase_train:0", TensorProto.BOOL, []))
    model.graph.node[-1].output[0] = "raw"
    model.graph.node.append(helper.make_node("Neg", ["raw"], ["negated"]))
    model.graph.node.append(
        helper.make_node("Where", ["phase_train:0", "negated", "raw"], ["feature"])
    )
    result = admitted(model, tmp_path, "rgb,pm1")
    expected = by_hand(make_vendor_net(), "rgb,pm1", pictures())
    np.testing.assert_allclose(
        load_model(tmp_path / "model").embed(pictures()), expected, atol=2e-6
    )
    assert "placeholder" in [repair.name for repair in result.card.repairs]


def test_reserved_names_inside_the_vendor_graph(make_vendor_net: Make, tmp_path: Path) -> None:
    model = make_vendor_net(output="embedding")
    model.graph.input[0].name = "image"
    model.graph.node[0].input[0] = "image"
    assert_same_function(model, tmp_path, "rgb,pm1")


def test_without_data_only_conclusive_hints_count(make_vendor_net: Make, tmp_path: Path) -> None:
    path = tmp_path / "vendor.onnx"
    model = make_vendor_net()
    path.write_bytes(model.SerializeToString())
    with pytest.raises(AmbiguousPreprocessing, match="--data"):
        admit(path, tmp_path / "model")
    means = np.asarray([123.675, 116.28, 103.53], np.float32).reshape(1, 3, 1, 1)
    model.graph.initializer.append(numpy_helper.from_array(means, "means"))
    model.graph.node.insert(0, helper.make_node("Sub", ["data", "means"], ["centred"]))
    model.graph.node[1].input[0] = "centred"
    path.write_bytes(model.SerializeToString())
    card = admit(path, tmp_path / "model").card
    assert (card.preprocessing.color, card.preprocessing.scaling) == ("rgb", "0-255")


def test_admitting_twice_gives_the_same_bytes_and_needs_consent(
    make_vendor_net: Make, tmp_path: Path
) -> None:
    first = admitted(make_vendor_net(), tmp_path, "rgb,pm1").card
    with pytest.raises(SpecError, match="--overwrite"):
        admitted(make_vendor_net(), tmp_path, "rgb,pm1")
    again = admit(
        tmp_path / "vendor.onnx", tmp_path / "model", preprocess="rgb,pm1", overwrite=True
    )
    place = tmp_path / "model" / "card.toml"
    assert again.card == first == read_card(place)
    place.write_bytes(b"\xef\xbb\xbf" + place.read_bytes())
    assert read_card(place) == first, "some editors write a byte-order mark"


def test_normal_form_is_admitted_unchanged(make_vendor_net: Make, tmp_path: Path) -> None:
    admitted(make_vendor_net(), tmp_path, "bgr,pm1")
    again = admit(tmp_path / "model" / "model.onnx", tmp_path / "again")
    assert again.card.preprocessing.describe() == "RGB, x/255, NCHW"
    expected = load_model(tmp_path / "model").embed(pictures())
    np.testing.assert_allclose(
        load_model(tmp_path / "again").embed(pictures()), expected, atol=1e-6
    )


def test_a_model_that_was_altered_is_refused(make_vendor_net: Make, tmp_path: Path) -> None:
    admitted(make_vendor_net(), tmp_path, "rgb,pm1")
    with (tmp_path / "model" / "model.onnx").open("ab") as handle:
        handle.write(b"\0")
    with pytest.raises(OnnxfrError, match="sha256"):
        load_model(tmp_path / "model")


def test_a_model_that_answers_nan_is_refused(make_vendor_net: Make, tmp_path: Path) -> None:
    model = make_vendor_net()
    model.graph.node[-1].output[0] = "raw"
    model.graph.node.append(helper.make_node("Neg", ["raw"], ["negated"]))
    model.graph.node.append(helper.make_node("Min", ["raw", "negated"], ["below"]))
    model.graph.node.append(helper.make_node("Log", ["below"], ["feature"]))
    with pytest.raises(UnsupportedModel, match="NaN"):
        admitted(model, tmp_path, "rgb,pm1")
