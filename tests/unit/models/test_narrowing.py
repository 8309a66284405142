"""Networks in float64 or bfloat16 are served in float32 where that is proven to be the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from onnxfr.errors import UnsupportedModel
from onnxfr.models.admission import admit
from onnxfr.models.graph import to_torch
from onnxfr.models.sessions import unit_rows
from onnxfr.models.wrapper import OnnxModel

Make = Callable[..., onnx.ModelProto]


def retyped(model: onnx.ModelProto, kind: int, dtype: Any) -> onnx.ModelProto:
    for tensor in model.graph.initializer:
        wide = numpy_helper.to_array(tensor).astype(dtype)
        tensor.CopyFrom(numpy_helper.from_array(wide, tensor.name))
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = kind
    return model


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [(TensorProto.DOUBLE, np.float64), (TensorProto.BFLOAT16, ml_dtypes.bfloat16)],
    ids=["float64", "bfloat16"],
)
@pytest.mark.parametrize("batch", [1, "N"])
def test_a_type_that_does_not_run_is_served_in_float32(
    kind: int, dtype: Any, batch: int | str, make_vendor_net: Make, tmp_path: Path
) -> None:
    plain = make_vendor_net()
    vendor = retyped(make_vendor_net(batch=batch), kind, dtype)
    (tmp_path / "vendor.onnx").write_bytes(vendor.SerializeToString())
    card = admit(tmp_path / "vendor.onnx", tmp_path / "model", preprocess="rgb,0-1").card
    repair = next(repair for repair in card.repairs if repair.name == "float32")
    assert repair.max_abs is not None and repair.max_abs < 1e-6
    for tensor in plain.graph.initializer:
        same = numpy_helper.to_array(tensor).astype(dtype).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(same, tensor.name))
    images = np.random.default_rng(0).random((3, 3, 32, 24), dtype=np.float32)
    expected = unit_rows(to_torch(plain)(torch.from_numpy(images)).numpy())
    model = OnnxModel(tmp_path / "model")
    np.testing.assert_allclose(model.embed(images), expected, atol=1e-5)
    assert model.differentiable


def test_a_network_that_needs_float64_is_refused_with_its_difference(
    make_vendor_net: Make, tmp_path: Path
) -> None:
    vendor = retyped(make_vendor_net(), TensorProto.DOUBLE, np.float64)
    vendor.graph.initializer.append(numpy_helper.from_array(np.float64(1e9), "large"))
    vendor.graph.node[-1].output[0] = "raw"
    vendor.graph.node.append(helper.make_node("Add", ["raw", "large"], ["moved"]))
    vendor.graph.node.append(helper.make_node("Sub", ["moved", "large"], ["feature"]))
    (tmp_path / "vendor.onnx").write_bytes(vendor.SerializeToString())
    with pytest.raises(UnsupportedModel, match=r"float64.*in float32 its embeddings differ by"):
        admit(tmp_path / "vendor.onnx", tmp_path / "model", preprocess="rgb,0-1")


def test_a_number_beyond_float32_stays_finite(make_vendor_net: Make, tmp_path: Path) -> None:
    vendor = retyped(make_vendor_net(), TensorProto.DOUBLE, np.float64)
    vendor.graph.initializer.append(numpy_helper.from_array(np.float64(1e300), "most"))
    vendor.graph.node[-1].output[0] = "raw"
    vendor.graph.node.append(helper.make_node("Min", ["raw", "most"], ["feature"]))
    (tmp_path / "vendor.onnx").write_bytes(vendor.SerializeToString())
    admit(tmp_path / "vendor.onnx", tmp_path / "model", preprocess="rgb,0-1")
    stored = onnx.load(tmp_path / "model" / "model.onnx").graph.initializer
    assert all(np.isfinite(numpy_helper.to_array(tensor)).all() for tensor in stored)
