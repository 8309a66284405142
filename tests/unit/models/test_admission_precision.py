"""Quantised and half-precision vendor files: admitted, served, differentiated straight through."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

from onnxfr.errors import OnnxfrWarning
from onnxfr.models.admission import admit
from onnxfr.models.parity import certify
from onnxfr.models.wrapper import load_model

Make = Callable[..., onnx.ModelProto]


class _Calibration(CalibrationDataReader):
    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        batches = [rng.uniform(-1, 1, (4, 3, 32, 24)).astype(np.float32) for _ in range(8)]
        self._batches: Iterator[dict[str, Any]] = iter({"data": batch} for batch in batches)

    def get_next(self) -> dict[str, Any] | None:
        return next(self._batches, None)


def pictures() -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(1).random((5, 3, 32, 24), dtype=np.float32)


@pytest.mark.filterwarnings("ignore::onnxfr.errors.OnnxfrWarning")
@pytest.mark.parametrize("form", [QuantFormat.QDQ, QuantFormat.QOperator])
@pytest.mark.parametrize("per_channel", [False, True])
def test_static_int8(
    form: QuantFormat, per_channel: bool, make_vendor_net: Make, tmp_path: Path
) -> None:
    onnx.save(make_vendor_net(), tmp_path / "float.onnx")
    quantize_static(
        tmp_path / "float.onnx",
        tmp_path / "int8.onnx",
        _Calibration(),
        quant_format=form,
        per_channel=per_channel,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        reduce_range=True,
    )
    card = admit(tmp_path / "int8.onnx", tmp_path / "model", preprocess="rgb,pm1").card
    assert card.precision == "int8" and card.batch == "dynamic"
    quantised = load_model(tmp_path / "model")
    admit(tmp_path / "float.onnx", tmp_path / "plain", preprocess="rgb,pm1")
    plain = load_model(tmp_path / "plain")
    images = pictures()
    agreement = (quantised.embed(images) * plain.embed(images)).sum(axis=1)
    assert agreement.min() > 0.98
    variable = torch.from_numpy(images).requires_grad_(True)
    rows = quantised.embed_grad(variable)
    np.testing.assert_allclose(rows.detach().numpy(), quantised.embed(images), atol=2e-2)
    (slope,) = torch.autograd.grad(rows[:, 0].sum(), variable)
    other = torch.from_numpy(images).requires_grad_(True)
    (reference,) = torch.autograd.grad(plain.embed_grad(other)[:, 0].sum(), other)
    cosine = torch.nn.functional.cosine_similarity(slope.flatten(), reference.flatten(), dim=0)
    assert cosine > 0.8
    certificate = certify(quantised)
    assert certificate.status == "yellow"
    assert "straight through" in next(f.sentence for f in certificate.flags if f.name == "gradient")


@pytest.mark.filterwarnings("ignore::onnxfr.errors.OnnxfrWarning")
def test_dynamic_int8_depends_on_the_batch_and_is_looped(
    make_vendor_net: Make, tmp_path: Path
) -> None:
    """Dynamic quantisation takes its range over the whole batch, so rows would leak."""
    onnx.save(make_vendor_net(), tmp_path / "float.onnx")
    quantize_dynamic(tmp_path / "float.onnx", tmp_path / "int8.onnx")
    card = admit(tmp_path / "int8.onnx", tmp_path / "model", preprocess="rgb,pm1").card
    model = load_model(tmp_path / "model")
    images = pictures()
    singles = np.concatenate([model.embed(images[k : k + 1]) for k in range(len(images))])
    assert card.batch == "loop" and "range of all pictures" in " ".join(card.notes)
    np.testing.assert_array_equal(model.embed(images), singles)


def test_saturating_int8_is_said_aloud(make_vendor_net: Make, tmp_path: Path) -> None:
    from onnxfr.models.hardware import int8_products_saturate

    if not int8_products_saturate():
        pytest.skip("this processor has VNNI: its int8 products do not saturate")
    onnx.save(make_vendor_net(), tmp_path / "float.onnx")
    quantize_static(
        tmp_path / "float.onnx",
        tmp_path / "int8.onnx",
        _Calibration(),
        quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )
    admit(tmp_path / "int8.onnx", tmp_path / "model", preprocess="rgb,pm1")
    with pytest.warns(OnnxfrWarning):
        _ = load_model(tmp_path / "model").engine
