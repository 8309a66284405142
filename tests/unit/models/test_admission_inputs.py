"""What is said to users whose words or files do not fit the network's input."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto

from onnxfr.errors import AmbiguousPreprocessing, SpecError, UnsupportedModel
from onnxfr.models.admission import admit

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
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.BFLOAT16
    path = vendor_file(model, tmp_path)
    with pytest.raises(UnsupportedModel, match=r"data: bfloat16\[\?, 3, 32, 24\]"):
        admit(path, tmp_path / "model", preprocess="rgb,pm1")
