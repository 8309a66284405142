"""Real networks: both engines give the same embedding, and the gradient is the true one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from PIL import Image

from onnxfr.models.graph import to_torch

NETWORKS = [
    "edgeface_xxs_dequant",
    "mobilefacenet_foamliu",
    "mobilefacenet_xiaoccer_112x96",
    "mobilefacenet_y1_from_mxnet",
]


def faces(shared_data: Path, width: int) -> np.ndarray:
    people = sorted((shared_data / "lfw_112").iterdir())[:3]
    paths = [next(iter(sorted(person.glob("*.jpg")))) for person in people]
    stack = np.stack([np.asarray(Image.open(path).convert("RGB"), np.float32) for path in paths])
    left = (112 - width) // 2
    return np.ascontiguousarray(stack.transpose(0, 3, 1, 2)[..., left : left + width])


@pytest.mark.parametrize("name", NETWORKS)
def test_real_network(shared_data: Path, name: str) -> None:
    path = shared_data / "models" / "onnx" / f"{name}.onnx"
    images = faces(shared_data, 96 if "112x96" in name else 112)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    field = session.get_inputs()[0].name
    want = np.concatenate([session.run(None, {field: row[None]})[0] for row in images])
    module = to_torch(onnx.load(path))
    got = np.concatenate([module(torch.from_numpy(row[None])).numpy() for row in images])
    want /= np.linalg.norm(want, axis=1, keepdims=True)
    got /= np.linalg.norm(got, axis=1, keepdims=True)
    assert np.abs(got - want).max() <= 1e-4

    wide = to_torch(onnx.load(path)).double()
    x = torch.from_numpy(images[:1]).double().requires_grad_()
    (slope,) = torch.autograd.grad(wide(x).sum(), x)
    rng = torch.Generator().manual_seed(0)
    for _ in range(2):
        way = torch.randn(x.shape, generator=rng, dtype=torch.float64)
        with torch.no_grad():
            step = 1e-6 * way
            numeric = (wide(x + step).sum() - wide(x - step).sum()) / 2e-6
        assert float((slope * way).sum()) == pytest.approx(float(numeric), rel=1e-3, abs=1e-4)
