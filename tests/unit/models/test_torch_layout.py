"""The layout of the differentiable graph: measured once, remembered, and never another function."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from onnxfr.models import torch_layout
from onnxfr.models.admission import admit
from onnxfr.models.wrapper import OnnxModel, load_model

Make = Callable[..., onnx.ModelProto]
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the layouts that networks are laid out in, as they come."""
    names: list[str] = []
    lay_out = torch_layout.lay_out
    monkeypatch.setattr(
        torch_layout, "lay_out", lambda m, name: (names.append(name), lay_out(m, name))[1]
    )
    return names


def one_pixel_wide(net: onnx.ModelProto) -> onnx.ModelProto:
    """Put a convolution of one pixel behind the second convolution."""
    weight = np.random.default_rng(7).normal(size=(16, 16, 1, 1)).astype(np.float32)
    net.graph.initializer.append(onnx.numpy_helper.from_array(weight, "pointwise"))
    place = [node.output[0] for node in net.graph.node].index("c2")
    net.graph.node[place].output[0] = "wide"
    node = onnx.helper.make_node("Conv", ["wide", "pointwise"], ["c2"])
    net.graph.node.insert(place + 1, node)
    return net


def admitted(net: onnx.ModelProto, folder: Path) -> OnnxModel:
    (folder / "vendor.onnx").write_bytes(net.SerializeToString())
    admit(folder / "vendor.onnx", folder / "model", preprocess="rgb,0-1")
    return load_model(folder / "model", threads=1)


def records(cache: Path) -> list[str]:
    return [json.loads(p.read_text())["layout"] for p in (cache / "torch").glob("*.json")]


@pytest.mark.parametrize(
    "name", ["planes", "channels-last", "planes spread", "channels-last spread"]
)
@pytest.mark.parametrize("batch", ["N", 1])
def test_every_layout_is_the_same_function(
    name: str,
    batch: int | str,
    make_vendor_net: Make,
    tmp_path: Path,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch_layout, "_measure", lambda *_: name)
    net = one_pixel_wide(make_vendor_net(batch=batch, baked=batch == 1))
    model = admitted(net, tmp_path)
    pictures = np.random.default_rng(5).random((5, 3, 32, 24), dtype=np.float32)
    found = model.embed_grad(torch.from_numpy(pictures)).detach().numpy()
    np.testing.assert_allclose(found, model.embed(pictures), atol=1e-5)
    assert records(cache) == [name]


@pytest.mark.parametrize("batch", ["N", 1])
def test_a_layout_is_measured_once_for_a_machine(
    batch: int | str,
    make_vendor_net: Make,
    tmp_path: Path,
    cache: Path,
    tried: list[str],
) -> None:
    net = one_pixel_wide(make_vendor_net(batch=batch, baked=batch == 1))
    model = admitted(net, tmp_path)
    model.torch_module(torch.float32, CPU)
    (chosen,) = records(cache)
    tried.clear()
    load_model(tmp_path / "model", threads=1).torch_module(torch.float32, CPU)
    assert tried == [chosen]


def test_a_damaged_record_is_measured_anew(
    make_vendor_net: Make, tmp_path: Path, cache: Path
) -> None:
    admitted(make_vendor_net(), tmp_path).torch_module(torch.float32, CPU)
    (record,) = (cache / "torch").glob("*.json")
    record.write_text('{"layout": "sideways"}')
    load_model(tmp_path / "model", threads=1).torch_module(torch.float32, CPU)
    assert records(cache) != ["sideways"]


def test_one_pixel_wide_convolutions_race_on_one_thread_only(
    make_vendor_net: Make, tmp_path: Path, cache: Path, tried: list[str]
) -> None:
    admitted(one_pixel_wide(make_vendor_net()), tmp_path).torch_module(torch.float32, CPU)
    assert {"planes", "planes spread", "channels-last spread"} <= set(tried)
    tried.clear()
    torch.set_num_threads(2)
    load_model(tmp_path / "model", threads=1).torch_module(torch.float32, CPU)
    assert tried and not any(name.endswith("spread") for name in tried)
