"""Live modules through the Python API."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest
import torch
from torch import Tensor, nn

from onnxfr.errors import UnsupportedModel
from onnxfr.exporters.architectures.ir import AdaFace, Unit
from onnxfr.exporters.pytorch import export_pytorch


def network() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.Dropout(), nn.Flatten())


def test_a_module_is_exported_in_inference_mode_and_left_as_it_was() -> None:
    module = network().train()
    module[2].eval()  # type: ignore[index]
    before = {key: value.clone() for key, value in module.state_dict().items()}
    exported = export_pytorch(module, input_size=(20, 24))
    assert exported.input_size == (20, 24)
    assert exported.embedding_dim == 8 * 9 * 11
    assert module.training and not module[2].training  # type: ignore[index]
    assert all(torch.equal(before[key], value) for key, value in module.state_dict().items())
    images = torch.rand(4, 3, 20, 24)
    session = ort.InferenceSession(
        exported.model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    with torch.no_grad():
        expected = module.eval()(images).numpy()
    assert np.abs(session.run(None, {"input": images.numpy()})[0] - expected).max() < 1e-5


def test_graph_is_plain() -> None:
    exported = export_pytorch(network(), input_size=(20, 24))
    graph = exported.model.graph
    assert exported.model.opset_import[0].version == 17
    assert [entry.name for entry in graph.input] == ["input"]
    assert graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"
    assert graph.output[0].type.tensor_type.shape.dim[0].dim_param == "N"


def test_adaface_answers_with_feature_and_norm() -> None:
    """The real forward on a body of one unit, because the whole net would take seconds."""
    torch.manual_seed(4)
    with torch.device("meta"):
        module = AdaFace(18)
    module.input_layer = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1))
    module.body = nn.Sequential(Unit(4, 8, 2, gated=False, inner_norm=True))
    module.output_layer = nn.Sequential(nn.Flatten(), nn.Linear(8 * 5 * 6, 16))
    exported = export_pytorch(module, "adaface_ir_18", input_size=(20, 24))
    session = ort.InferenceSession(
        exported.model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    images = torch.rand(3, 3, 20, 24)
    feature, norm = session.run(None, {"input": images.numpy()})
    raw = module.eval().output_layer(module.body(module.input_layer(images))).detach().numpy()
    assert [entry.name for entry in exported.model.graph.output] == ["embedding", "norm"]
    assert norm.shape == (3, 1)
    assert np.allclose(norm[:, 0], np.linalg.norm(raw, axis=1), rtol=1e-5)
    assert np.allclose(feature * norm, raw, atol=1e-5)


def test_a_module_that_gives_maps_is_refused() -> None:
    with pytest.raises(UnsupportedModel, match="4 axes"):
        export_pytorch(nn.Conv2d(3, 8, 3))


def test_a_module_that_fails_is_refused() -> None:
    class Failing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise ValueError("wants another size")

    with pytest.raises(UnsupportedModel, match="wants another size"):
        export_pytorch(Failing())
