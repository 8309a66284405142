"""Files saved in training mode, as exporters write them where ``eval()`` was forgotten."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from onnxfr.models.admission import admit
from onnxfr.models.wrapper import OnnxModel

Make = Callable[..., onnx.ModelProto]


def trained_network() -> nn.Module:
    torch.manual_seed(0)
    network = nn.Sequential(
        *(nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.PReLU(8), nn.AvgPool2d(13), nn.Flatten()),
        *(nn.Dropout(0.4), nn.Linear(128, 64), nn.BatchNorm1d(64)),
    )
    for _ in range(20):
        network(torch.rand(8, 3, 112, 112))
    return network


def unit(rows: torch.Tensor) -> np.ndarray:
    return nn.functional.normalize(rows.detach()).numpy()


@pytest.mark.parametrize("by_tracing", [True, False])
def test_exports_of_torch_in_training_mode_answer_as_in_use(
    by_tracing: bool, tmp_path: Path
) -> None:
    network, path = trained_network(), tmp_path / "vendor.onnx"
    pictures = torch.rand(2, 3, 112, 112)
    options = {"training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            *(network.train(), (pictures,), path),
            dynamo=not by_tracing,
            **(options if by_tracing else {}),
        )
    expected = unit(network.eval()(pictures))
    admission = admit(path, tmp_path / "model", preprocess="rgb,0-1")
    np.testing.assert_allclose(
        OnnxModel(admission.folder).embed(pictures.numpy()), expected, atol=1e-5
    )
    told = [repair.detail for repair in admission.card.repairs if repair.name == "training-mode"]
    assert any("1 Dropout" in detail for detail in told)
    assert any("2 BatchNormalization" in detail for detail in told) == by_tracing


def test_updated_statistics_among_the_outputs_are_no_embedding(
    make_vendor_net: Make, tmp_path: Path
) -> None:
    """A training graph hands its running statistics on; they stay what they were."""
    net = make_vendor_net(opset=15)
    rng = np.random.default_rng(1)
    statistics = {n: rng.random(64).astype(np.float32) + 0.5 for n in ("s", "b", "mean", "var")}
    net.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in statistics.items())
    net.graph.node[-1].output[0] = "raw"
    inputs, outputs = ["raw", *statistics], ["feature", "new_mean", "new_var"]
    norm = helper.make_node("BatchNormalization", inputs, outputs, training_mode=1)
    net.graph.node.append(norm)
    value = helper.make_tensor_value_info("new_mean", TensorProto.FLOAT, [64])
    net.graph.output.insert(0, value)
    (tmp_path / "vendor.onnx").write_bytes(net.SerializeToString())
    card = admit(tmp_path / "vendor.onnx", tmp_path / "model", preprocess="rgb,pm1").card
    assert card.output == "feature" and card.batch == "dynamic"


def test_a_dropout_told_to_stay_out_is_no_repair(make_vendor_net: Make, tmp_path: Path) -> None:
    net = make_vendor_net()
    net.graph.node[-1].output[0] = "raw"
    for name, constant in (("ratio", np.float32(0.5)), ("off", np.asarray(False))):
        net.graph.initializer.append(numpy_helper.from_array(np.asarray(constant), name))
    net.graph.node.append(helper.make_node("Dropout", ["raw", "ratio", "off"], ["feature"]))
    (tmp_path / "vendor.onnx").write_bytes(net.SerializeToString())
    card = admit(tmp_path / "vendor.onnx", tmp_path / "model", preprocess="rgb,pm1").card
    assert not any(repair.name == "training-mode" for repair in card.repairs)
