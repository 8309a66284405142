"""The certificate catches what it exists to catch."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper

from onnxfr.models import parity
from onnxfr.models.admission import admit
from onnxfr.models.certificate import read_certificate, write_certificate
from onnxfr.models.gradient_check import gradient_error
from onnxfr.models.parity import certify
from onnxfr.models.wrapper import OnnxModel, load_model

Make = Callable[..., onnx.ModelProto]


@pytest.fixture
def model(make_vendor_net: Make, tmp_path: Path) -> OnnxModel:
    (tmp_path / "vendor.onnx").write_bytes(make_vendor_net().SerializeToString())
    admit(tmp_path / "vendor.onnx", tmp_path / "model", preprocess="rgb,pm1")
    return load_model(tmp_path / "model", threads=1)


def pictures(model: OnnxModel) -> np.ndarray[Any, np.dtype[np.float32]]:
    return parity._pictures(model, None)


def test_a_sound_model_is_green_and_its_certificate_is_kept(model: OnnxModel) -> None:
    certificate = certify(model)
    assert certificate.status == "green"
    write_certificate(certificate, model.folder)
    stored = read_certificate(model.folder, model.card.sha256)
    assert stored == json.loads(json.dumps(certificate.to_json()))
    for key in ("status", "parity", "gradient", "batch", "flags"):
        assert key in stored


class _HalfBlind(torch.autograd.Function):
    """The identity whose gradient ignores some pixels."""

    @staticmethod
    def forward(ctx: Any, images: torch.Tensor) -> torch.Tensor:
        return images.clone()

    @staticmethod
    def backward(ctx: Any, slope: torch.Tensor) -> torch.Tensor:
        blinded = slope.clone()
        blinded[..., ::8] = 0
        return blinded


def test_a_gradient_that_misses_every_eighth_column_is_caught(
    model: OnnxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gradient_error(model, pictures(model)) < 3e-3
    honest = model.embed_grad
    monkeypatch.setattr(model, "embed_grad", lambda x: honest(_HalfBlind.apply(x)))
    assert gradient_error(model, pictures(model)) > 3e-2
    assert certify(model).status == "red"


def test_engines_that_disagree_are_red(model: OnnxModel, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = model.embed_grad
    monkeypatch.setattr(model, "embed_grad", lambda x: honest(x * 0.99))
    flags = {flag.name: flag.level for flag in certify(model).flags}
    assert flags["parity"] == "red"


def test_an_operator_without_a_rule_leaves_the_model_usable(
    make_vendor_net: Make, tmp_path: Path
) -> None:
    net = make_vendor_net(opset=15)
    net.graph.node[-1].output[0] = "raw"
    net.graph.node.append(helper.make_node("RandomNormalLike", ["raw"], ["noise"], scale=1e-9))
    net.graph.node.append(helper.make_node("Add", ["raw", "noise"], ["feature"]))
    (tmp_path / "vendor.onnx").write_bytes(net.SerializeToString())
    admit(tmp_path / "vendor.onnx", tmp_path / "model", preprocess="rgb,pm1")
    model = load_model(tmp_path / "model")
    assert model.embed(pictures(model)).shape == (32, 64)
    assert not model.differentiable
    certificate = certify(model)
    assert certificate.status == "yellow"
    assert certificate.gradient == {"differentiable": False, "max_rel_err": None}
    assert "RandomNormalLike" in next(
        flag.sentence for flag in certificate.flags if flag.name == "differentiable"
    )


def test_a_randomised_model_is_flagged(make_vendor_net: Make, tmp_path: Path) -> None:
    net = make_vendor_net(opset=15)
    net.graph.node[-1].output[0] = "raw"
    net.graph.node.append(helper.make_node("RandomNormalLike", ["raw"], ["noise"], scale=1e-6))
    net.graph.node.append(helper.make_node("Add", ["raw", "noise"], ["feature"]))
    (tmp_path / "vendor.onnx").write_bytes(net.SerializeToString())
    admit(tmp_path / "vendor.onnx", tmp_path / "model", preprocess="rgb,pm1")
    flags = {flag.name for flag in certify(load_model(tmp_path / "model")).flags}
    assert "deterministic" in flags
