"""Small verifiers and games on them: honest, shattered, randomised and coarse networks."""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

from onnxfr.attacks import ATTACKS, Attack
from onnxfr.attacks.white_box.bim import BIM
from onnxfr.models.admission import admit
from onnxfr.models.wrapper import FRModel, OnnxModel, load_model
from onnxfr.oracle import Oracle
from onnxfr.probe import Probe
from onnxfr.threat import Threat
from onnxfr.types import Access, Embeddings, Goal, Images

SIDE = 16
SMALL: dict[str, Any] = {
    "steps": 8,
    "samples": 2,
    "neighbours": 2,
    "others": 1,
    "scales": 2,
    "growths": 3,
    "bisections": 2,
    "attack": BIM(steps=8),
}


def write_tiny(folder: Path, seed: int = 0) -> Path:
    """Admit a random network with two convolutions and return its folder."""
    random = np.random.default_rng(seed)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        fan = float(np.prod(shape[1:]))
        values = random.standard_normal(shape) / np.sqrt(fan)
        return numpy_helper.from_array(values.astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "a"], ["c1"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "b"], ["c2"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c2"], ["r2"]),
        helper.make_node("Flatten", ["r2"], ["f"]),
        helper.make_node("Gemm", ["f", "d"], ["y"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 64])],
        [weight("a", 8, 3, 3, 3), weight("b", 16, 8, 3, 3), weight("d", 64, SIDE * SIDE)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path = folder.parent / f"{folder.name}.onnx"
    onnx.save(model, path)
    admit(path, folder, preprocess="rgb,pm1", name=folder.name)
    return folder


@lru_cache(maxsize=4)
def tiny_model(folder: Path, seed: int = 0) -> OnnxModel:
    """Return the tiny network, written below ``folder`` on first use."""
    place = folder / f"tiny{seed}"
    return load_model(place if place.exists() else write_tiny(place, seed), threads=1)


class Shattered(FRModel):
    """Rounds the picture first: the derivative is zero wherever there is one."""

    def __init__(self, inner: FRModel, levels: int = 16) -> None:
        self.inner, self.levels, self.card = inner, levels, inner.card

    @property
    def differentiable(self) -> bool:
        return True

    def embed(self, images: Images) -> Embeddings:
        return self.inner.embed(np.round(images * self.levels) / np.float32(self.levels))

    def embed_grad(self, images: torch.Tensor) -> torch.Tensor:
        rounded = (images * self.levels).round() / self.levels
        return self.inner.embed_grad(rounded)


class Randomised(FRModel):
    """Adds fresh noise to the picture at every call."""

    def __init__(self, inner: FRModel, noise: float = 0.05) -> None:
        self.inner, self.noise, self.card = inner, noise, inner.card
        self._random = np.random.default_rng(5)

    @property
    def differentiable(self) -> bool:
        return True

    def embed(self, images: Images) -> Embeddings:
        dice = self._random.standard_normal(images.shape, dtype=np.float32) * self.noise
        return self.inner.embed(images + dice.astype(np.float32))

    def embed_grad(self, images: torch.Tensor) -> torch.Tensor:
        dice = self._random.standard_normal(tuple(images.shape)) * self.noise
        return self.inner.embed_grad(images + torch.as_tensor(dice, dtype=images.dtype))


class Coarse(FRModel):
    """Is served in numbers coarser than those of its gradients, as a network in 16 bits is."""

    def __init__(self, inner: FRModel, digits: int = 2) -> None:
        self.inner, self.digits, self.card = inner, digits, inner.card

    @property
    def differentiable(self) -> bool:
        return True

    def embed(self, images: Images) -> Embeddings:
        rounded = np.round(self.inner.embed(images), self.digits)
        return np.asarray(rounded / np.linalg.norm(rounded, axis=1, keepdims=True), np.float32)

    def embed_grad(self, images: torch.Tensor) -> torch.Tensor:
        return self.inner.embed_grad(images)


def tiny_probe(rows: int = 4, seed: int = 0) -> Probe:
    """Return pictures with distinct references, landmarks and a pool of others."""
    random = np.random.default_rng(seed)
    smooth = random.random((2 * rows + 3, 3, 4, 4)).repeat(4, axis=2).repeat(4, axis=3)
    pictures = (0.2 + 0.6 * smooth).astype(np.float32)
    landmarks = random.random((rows, 12, 2)).astype(np.float32) * SIDE
    return Probe(
        images=pictures[:rows],
        ids=tuple(f"pair{k}" for k in range(rows)),
        references=pictures[rows : 2 * rows],
        landmarks=landmarks,
        pool=pictures[2 * rows :],
    )


def tiny_threshold(model: FRModel, probe: Probe, goal: Goal, gap: float = 0.02) -> float:
    """Return a threshold that leaves every pair ``gap`` or more away from being lost."""
    assert probe.references is not None
    similarity = model.similarity(probe.images, probe.references)
    return float(similarity.min() - gap if goal is Goal.DODGE else similarity.max() + gap)


def tiny_game(
    model: FRModel, probe: Probe, threat: Threat, goal: Goal, **settings: object
) -> Oracle:
    """Return an oracle that nobody beats without an attack."""
    threshold = tiny_threshold(model, probe, goal) if len(probe) else 0.0
    settings = {"dtype": torch.float64, "device": "cpu"} | settings
    return Oracle(model, probe, threat, goal=goal, threshold=threshold, **settings)  # type: ignore[arg-type]


def small(name: str) -> Attack:
    """Return the attack with loops short enough for a contract."""
    attack = ATTACKS.get(name)()
    known = {field.name for field in dataclasses.fields(attack)}
    if attack.access < Access.GRADIENT:
        return attack  # the cap on queries keeps these short
    changes = {
        key: value
        for key, value in SMALL.items()
        if key in known and (not isinstance(value, int) or getattr(attack, key) > value)
    }
    return dataclasses.replace(attack, **changes)
