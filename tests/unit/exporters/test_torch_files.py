"""Reading weight files: every container gives the weights, no hostile one runs or swells."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from onnxfr.errors import UnreadableModel
from onnxfr.exporters.pytorch import read_checkpoint


def small_network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 5))


def same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> bool:
    return found.keys() == expected.keys() and all(
        torch.equal(found[key], value) and found[key].dtype == value.dtype
        for key, value in expected.items()
    )


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: state,
        lambda state: {"epoch": 3, "net_state_dict": state, "best": 0.9},
        lambda state: {"optimizer": {"state": {0: {"m": torch.ones(2)}}}, "state_dict": state},
    ],
)
def test_state_dicts_are_read_as_saved(tmp_path: Path, zipped: bool, wrap: Any) -> None:
    state = small_network().state_dict()
    path = tmp_path / "weights.pt"
    torch.save(wrap(state), path, _use_new_zipfile_serialization=zipped)
    assert same(read_checkpoint(path).state_dict, state)


@pytest.mark.parametrize("zipped", [True, False])
def test_views_and_types_survive(tmp_path: Path, zipped: bool) -> None:
    base = torch.arange(24, dtype=torch.float32)
    state = {
        "transposed": base.reshape(4, 6).t(),
        "offset": base[5:9],
        "half": base[:4].half(),
        "brain": base[:4].bfloat16(),
        "double": base[:4].double(),
        "flag": torch.tensor([True, False]),
        "scalar": torch.tensor(7),
        "none": torch.empty(0, 3),
        "parameter": nn.Parameter(torch.ones(2)).data,
    }
    path = tmp_path / "weights.pt"
    torch.save(state, path, _use_new_zipfile_serialization=zipped)
    assert same(read_checkpoint(path).state_dict, state)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickled_module_gives_its_weights_without_its_class(tmp_path: Path, zipped: bool) -> None:
    vanishing = types.ModuleType("vanishing_backbone")
    exec("from torch import nn\nclass Net(nn.Sequential):\n    pass\n", vanishing.__dict__)
    sys.modules["vanishing_backbone"] = vanishing
    path = tmp_path / "module.pkl"
    network = nn.DataParallel(vanishing.Net(*small_network()))
    try:
        torch.save(network, path, _use_new_zipfile_serialization=zipped)
    finally:
        del sys.modules["vanishing_backbone"]
    checkpoint = read_checkpoint(path)
    assert same(checkpoint.state_dict, network.state_dict())
    assert "vanishing_backbone.Net" in checkpoint.origins
    assert "vanishing_backbone" not in sys.modules


def test_torchscript_gives_its_weights_only(tmp_path: Path) -> None:
    network = small_network().eval()
    path = tmp_path / "scripted.pt"
    traced: Any = torch.jit.trace(network, torch.zeros(1, 3, 4, 4))  # type: ignore[no-untyped-call]
    traced.save(str(path))
    checkpoint = read_checkpoint(path)
    expected = network.state_dict()
    assert checkpoint.container == "torchscript"
    assert all(torch.equal(checkpoint.state_dict[key], expected[key]) for key in expected)
    assert any("not run" in note for note in checkpoint.notes)


def test_safetensors(tmp_path: Path) -> None:
    saving = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    state = small_network().state_dict()
    path = tmp_path / "weights.safetensors"
    saving.save_file(state, path)
    assert same(read_checkpoint(path).state_dict, state)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(UnreadableModel):
        read_checkpoint(path)


@pytest.mark.filterwarnings("ignore")
def test_int8_layers_are_dequantised(tmp_path: Path) -> None:
    weight = torch.randn(5, 4)
    per_tensor = torch.quantize_per_tensor(weight, 0.02, 3, torch.qint8)
    scales, zeros = torch.rand(5) * 0.02 + 0.01, torch.zeros(5, dtype=torch.int64)
    per_channel = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
    state = {
        "fc.scale": torch.tensor(0.1),
        "fc.zero_point": torch.tensor(4),
        "fc._packed_params.dtype": torch.qint8,
        "fc._packed_params._packed_params": (per_tensor, torch.ones(5)),
        "conv.weight": per_channel,
        "conv.bias": torch.zeros(5),
        "conv.scale": torch.tensor(0.1),
        "conv.zero_point": torch.tensor(0),
        "learnt.scale": torch.tensor(2.0),
    }
    path = tmp_path / "int8.pt"
    torch.save(state, path)
    found = read_checkpoint(path).state_dict
    assert set(found) == {"fc.weight", "fc.bias", "conv.weight", "conv.bias", "learnt.scale"}
    assert torch.allclose(found["fc.weight"], per_tensor.dequantize(), atol=1e-7)
    assert torch.allclose(found["conv.weight"], per_channel.dequantize(), atol=1e-7)
