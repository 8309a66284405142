"""Every registered architecture: its size, its shapes, its own checkpoint, its graph."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest
import torch
from torch import Tensor, nn

from onnxfr.exporters.architectures import ARCHITECTURES, Architecture, count_parameters
from onnxfr.exporters.architectures.matching import detect_architecture, fit
from onnxfr.exporters.pytorch import export_pytorch
from onnxfr.models.graph.convert import to_torch

NAMES = ARCHITECTURES.names()
ROBFR = {
    "FaceNet": "27.91",
    "SphereFace": "28.08",
    "CosFace": "22.67",
    "ArcFace": "43.80",
    "MobileFace": "1.20",
    "MobileNet": "3.75",
    "MobileNetV2": "2.90",
    "ShuffleNetV1": "1.46",
    "ShuffleNetV2": "1.83",
    "ResNet50": "40.29",
    "Softmax-IR": "43.57",
    "SphereFace-IR": "43.57",
    "AM-IR": "43.57",
    "CosFace-IR": "43.57",
    "ArcFace-IR": "43.57",
}
OODFACE = {"AdaFace": "43.6", "ElasticFace": "65.2", "TransFace": "86.7", "TopoFR": "87.5"}
SMALL = [
    "edgeface_s_gamma_05",
    "edgeface_xxs",
    "ghostnet",
    "mobilefacenet",
    "mobilefacenet_112x96",
    "mobilefacenet_foamliu",
    "mobilefacenet_insightface",
    "mobilenet_v2",
    "mobilenet_v3",
    "openface_nn4_small2",
    "shufflenet_v1",
    "shufflenet_v2",
]


def on_meta(architecture: Architecture) -> nn.Module:
    with torch.device("meta"):
        return architecture.build().eval()


def calibrated(module: nn.Module, images: Tensor) -> nn.Module:
    """Set BatchNorm to the images and open the layer scales, so that the answer depends on both."""
    for key, value in module.state_dict().items():
        if "gamma" in key:
            value.fill_(0.5)
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            layer.momentum = 1.0
    with torch.no_grad():
        module.train()(images)
    return module.eval()


@pytest.mark.parametrize("name", NAMES)
def test_size_is_what_the_papers_print(name: str) -> None:
    architecture = ARCHITECTURES.get(name)
    parameters = count_parameters(on_meta(architecture))
    for reported in architecture.reported:
        assert reported.agrees(parameters), f"{reported} but we count {parameters}"


@pytest.mark.parametrize(("table", "rows"), [("RobFR", ROBFR), ("OODFace", OODFACE)])
def test_every_model_of_the_tables_is_covered(table: str, rows: dict[str, str]) -> None:
    printed: dict[str, str] = {}
    for _, architecture in ARCHITECTURES.items():
        for reported in architecture.reported:
            source = reported.source.partition(",")[0]
            if source.startswith(f"{table} Table 1: "):
                printed[source.removeprefix(f"{table} Table 1: ")] = reported.millions
    assert printed == rows


@pytest.mark.parametrize("name", NAMES)
def test_outputs_have_the_declared_shapes(name: str) -> None:
    architecture = ARCHITECTURES.get(name)
    images = torch.zeros(2, 3, *architecture.input_size, device="meta")
    answer = on_meta(architecture)(images)
    outputs = answer if isinstance(answer, tuple) else (answer,)
    assert len(outputs) == len(architecture.outputs)
    assert tuple(outputs[0].shape) == (2, architecture.embedding_dim)


@pytest.mark.parametrize("name", NAMES)
def test_own_keys_are_detected_even_when_wrapped(name: str) -> None:
    state: dict[str, Tensor] = on_meta(ARCHITECTURES.get(name)).state_dict()
    assert detect_architecture(state) == name
    wrapped = {f"module.{key}": value for key, value in state.items()}
    assert detect_architecture(wrapped) == name


@pytest.mark.parametrize("name", NAMES)
def test_a_lost_key_is_reported(name: str) -> None:
    state = on_meta(ARCHITECTURES.get(name)).state_dict()
    lost = next(key for key in state if key.endswith("weight"))
    del state[lost]
    found = fit(state, ARCHITECTURES.get(name))
    assert not found.complete
    assert lost in found.missing
    assert lost in found.report()


@pytest.mark.parametrize("name", SMALL)
def test_exported_graph_equals_the_module(name: str) -> None:
    torch.manual_seed(3)
    architecture = ARCHITECTURES.get(name)
    many = torch.rand(8, 3, *architecture.input_size) * 2 - 1
    module, images = calibrated(architecture.build(), many), many[:3]
    exported = export_pytorch(module, name)
    with torch.no_grad():
        expected = module(images).numpy()
    session = ort.InferenceSession(
        exported.model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    converted = to_torch(exported.model)(images).numpy()
    batch = session.run(None, {"input": images.numpy()})[0]
    alone = session.run(None, {"input": images[1:2].numpy()})[0]
    scale = float(np.abs(expected).max())
    assert exported.embedding_dim == architecture.embedding_dim == batch.shape[1]
    assert np.abs(batch - expected).max() < 1e-4 * scale
    assert np.abs(converted - expected).max() < 1e-4 * scale
    assert np.abs(alone - batch[1:2]).max() < 1e-4 * scale
    assert np.abs(expected[0] - expected[1]).max() > 0.05 * scale
