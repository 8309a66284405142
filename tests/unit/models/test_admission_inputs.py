"""What is said to users whose words or files do not fit the network's input."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxfr.errors import AmbiguousPreprocessing, SpecError, UnsupportedModel
from onnxfr.models.admission import admit
from onnxfr.models.wrapper import OnnxModel

Make = Callable[..., onnx.ModelProto]


def vendor_file(net: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "vendor.onnx"
    path.write_bytes(net.SerializeToString())
    return path


@pytest.mark.parametrize(
    ("dress", "stated", "expected"),
    [
        ({}, "grey,pm1", r"3 channel.*expected rgb or bgr.*got grey; say for example rgb,pm1"),
        ({"elem_type": TensorProto.UINT8}, "bgr,pm1", "bytes: expected 0-255.*got pm1"),
        ({"layout": "nhwc"}, "rgb,pm1,nchw", "NHWC pictures: expected nhwc.*got nchw"),
    ],
)
def test_a_stated_preprocessing_that_the_input_cannot_take_is_refused(
    dress: dict[str, Any], stated: str, expected: str, make_vendor_net: Make, tmp_path: Path
) -> None:
    path = vendor_file(make_vendor_net(**dress), tmp_path)
    with pytest.raises(SpecError, match=expected):
        admit(path, tmp_path / "model", preprocess=stated)


def test_examples_in_messages_fit_the_input(make_vendor_net: Make, tmp_path: Path) -> None:
    path = vendor_file(make_vendor_net(elem_type=TensorProto.UINT8), tmp_path)
    with pytest.raises(AmbiguousPreprocessing, match="for example rgb,0-255"):
        admit(path, tmp_path / "model")


def test_an_input_of_the_wrong_type_is_named_with_its_type(
    make_vendor_net: Make, tmp_path: Path
) -> None:
    model = make_vendor_net()
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.INT32
    path = vendor_file(model, tmp_path)
    with pytest.raises(UnsupportedModel, match=r"data: int32\[\?, 3, 32, 24\]"):
        admit(path, tmp_path / "model", preprocess="rgb,pm1")


def with_loss(model: onnx.ModelProto) -> onnx.ModelProto:
    """A training graph: beside the embedding a loss that wants the picture's label."""
    model.graph.node.append(
        helper.make_node("SoftmaxCrossEntropyLoss", ["feature", "label"], ["loss"])
    )
    model.graph.input.append(helper.make_tensor_value_info("label", TensorProto.INT64, ["N"]))
    model.graph.output.append(helper.make_tensor_value_info("loss", TensorProto.FLOAT, []))
    return model


def test_what_the_embedding_does_not_need_is_left_out(
    make_vendor_net: Make, tmp_path: Path
) -> None:
    path = vendor_file(with_loss(make_vendor_net()), tmp_path)
    with pytest.raises(UnsupportedModel, match=r"besides data.*wants label: int64\[\?\].*--output"):
        admit(path, tmp_path / "model", preprocess="rgb,pm1")
    card = admit(path, tmp_path / "model", preprocess="rgb,pm1", output="feature").card
    assert [(repair.name, repair.max_abs) for repair in card.repairs] == [("inputs", 0.0)]


def test_a_head_left_aside_costs_neither_weights_nor_gradient(
    make_vendor_net: Make, tmp_path: Path
) -> None:
    model = make_vendor_net()
    names = ["boxes", "scores", "most"]
    stored = (np.zeros((1, 9, 4), np.float32), np.zeros((1, 1, 9), np.float32), np.array([1]))
    for name, values in zip(names, stored, strict=True):
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    model.graph.node.append(helper.make_node("NonMaxSuppression", names, ["kept"]))
    model.graph.output.append(helper.make_tensor_value_info("kept", TensorProto.INT64, None))
    admit(vendor_file(model, tmp_path), tmp_path / "model", preprocess="rgb,pm1")
    admitted = OnnxModel(tmp_path / "model")
    assert admitted.differentiable
    assert "boxes" not in {tensor.name for tensor in admitted.graph().graph.initializer}


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_an_input_without_a_declared_shape_may_be_the_picture(
    layout: str, make_vendor_net: Make, tmp_path: Path
) -> None:
    declared = make_vendor_net(layout=layout, size=(112, 112))
    model = onnx.ModelProto()
    model.CopyFrom(declared)
    model.graph.input[0].type.tensor_type.ClearField("shape")
    (tmp_path / "declared").mkdir()
    paths = vendor_file(model, tmp_path), vendor_file(declared, tmp_path / "declared")
    got, expected = (
        admit(path, tmp_path / f"model{k}", preprocess="rgb,pm1") for k, path in enumerate(paths)
    )
    assert (got.card.input_height, got.card.input_width, got.card.batch) == (112, 112, "dynamic")
    assert any("leaves the size of its pictures open" in note for note in got.card.notes)
    pictures = np.random.default_rng(0).random((2, 3, 112, 112), dtype=np.float32)
    np.testing.assert_allclose(
        OnnxModel(got.folder).embed(pictures), OnnxModel(expected.folder).embed(pictures), atol=1e-6
    )


def test_open_channels_are_read_off_the_first_filter(make_vendor_net: Make, tmp_path: Path) -> None:
    model = make_vendor_net(size=(112, 112))
    filters = model.graph.initializer[0]
    grey = numpy_helper.to_array(filters)[:, :1]
    filters.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(grey), filters.name))
    model.graph.input[0].type.tensor_type.ClearField("shape")
    card = admit(vendor_file(model, tmp_path), tmp_path / "model", preprocess="grey,pm1").card
    assert card.preprocessing.color == "grey"


def test_nan_in_what_the_embedding_does_not_need_is_no_matter(
    make_vendor_net: Make, tmp_path: Path
) -> None:
    model = make_vendor_net()
    broken = numpy_helper.from_array(np.full((64, 1000), np.nan, np.float32), "classes")
    model.graph.initializer.append(broken)
    model.graph.node.append(helper.make_node("MatMul", ["feature", "classes"], ["logits"]))
    model.graph.output.append(helper.make_tensor_value_info("logits", TensorProto.FLOAT, None))
    path = vendor_file(model, tmp_path)
    assert admit(path, tmp_path / "model", preprocess="rgb,pm1").card.output == "feature"
    with pytest.raises(UnsupportedModel, match="'classes' contains NaN"):
        admit(path, tmp_path / "head", preprocess="rgb,pm1", output="logits", closed_set=True)
