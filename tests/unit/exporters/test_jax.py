"""JAX and Flax through the Python API: a MobileFaceNet written in Flax with y1's real weights."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper

from onnxfr.errors import MissingExtra, SpecError, UnsupportedModel
from onnxfr.exporters.jax import export
from onnxfr.exporters.mxnet import export_mxnet

INSTALLED = all(importlib.util.find_spec(name) for name in ("jax", "flax", "jax2onnx"))
needs_jax = pytest.mark.skipif(not INSTALLED, reason="needs jax, flax and jax2onnx: onnxfr[jax]")

STAGES = ((64, 128, 1), (64, 128, 4), (128, 256, 1), (128, 256, 6), (128, 512, 1), (128, 256, 2))
"""Channels, inner channels and blocks; stages of one block halve the picture."""


def run(model: onnx.ModelProto, images: NDArray[np.float32]) -> NDArray[np.float32]:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    answer: NDArray[np.float32] = session.run(None, {session.get_inputs()[0].name: images})[0]
    return answer


def unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def mobilefacenet(dtype: Any = None) -> Any:
    """Return MobileFaceNet as a Flax Linen module that takes raw RGB, channels last."""
    import jax.numpy as jnp
    from flax import linen as nn

    class Unit(nn.Module):  # type: ignore[misc]
        features: int
        side: int = 1
        stride: int = 1
        group: int = 1
        pad: int = 0
        bends: bool = True

        @nn.compact
        def __call__(self, x: Any) -> Any:
            window = (self.side, self.side)
            x = nn.Conv(
                self.features, window, self.stride, [(self.pad, self.pad)] * 2,
                feature_group_count=self.group, use_bias=False,
            )(x)  # fmt: skip
            x = nn.BatchNorm(use_running_average=True, epsilon=1e-3)(x)
            if self.bends:
                slope = self.param("slope", nn.initializers.ones, (self.features,))
                x = jnp.where(x >= 0, x, x * slope)
            return x

    class MobileFaceNet(nn.Module):  # type: ignore[misc]
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = Unit(64, 3, 2, pad=1)((x - 127.5) * 0.0078125)
            x = Unit(64, 3, group=64, pad=1)(x)
            for channels, inner, blocks in STAGES:
                for _ in range(blocks):
                    y = Unit(inner)(x)
                    y = Unit(inner, 3, 2 if blocks == 1 else 1, inner, 1)(y)
                    y = Unit(channels, bends=False)(y)
                    x = y if blocks == 1 else y + x
            x = Unit(512)(x)
            x = Unit(512, 7, group=512, bends=False)(x)
            x = nn.Dense(128)(x.reshape(x.shape[0], -1))
            return nn.BatchNorm(use_running_average=True, epsilon=2e-5)(x)

    return MobileFaceNet()


def y1_variables(graph: onnx.GraphProto) -> dict[str, Any]:
    """Return the weights of the MXNet original under the names of the Flax module."""
    weights = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    params: dict[str, Any] = {}
    stats: dict[str, Any] = {}
    place, count = "", 0
    for node in graph.node:
        values = [weights[name] for name in node.input[1:] if name in weights]
        if node.op_type == "Conv":
            place, count = f"Unit_{count}", count + 1
            params[place] = {"Conv_0": {"kernel": values[0].transpose(2, 3, 1, 0)}}
        elif node.op_type == "Gemm":
            params["Dense_0"] = {"kernel": values[0].T, "bias": values[1]}
            place = ""
        elif node.op_type == "BatchNormalization":
            scale, bias, mean, var = values
            own = params[place] if place else params
            own["BatchNorm_0"] = {"scale": scale, "bias": bias}
            kept = stats.setdefault(place, {}) if place else stats
            kept["BatchNorm_0"] = {"mean": mean, "var": var}
        elif node.op_type == "PRelu":
            params[place]["slope"] = values[0].reshape(-1)
    return {"params": params, "batch_stats": stats}


@pytest.fixture
def faces(shared_data: Path) -> NDArray[np.float32]:
    paths = sorted((shared_data / "lfw_112").glob("B*/*_0001.jpg"))[:8]
    pixels = [cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB) for path in paths]
    return np.stack(pixels).astype(np.float32)


@needs_jax
def test_a_flax_network_with_real_weights_answers_as_flax_and_as_the_original_do(
    shared_data: Path, faces: NDArray[np.float32]
) -> None:
    original = export_mxnet(shared_data / "models" / "mxnet" / "mobilefacenet_y1-symbol.json").model
    variables = y1_variables(original.graph)
    module = mobilefacenet()
    theirs = np.asarray(module.apply(variables, faces))
    made = export(module, variables, (112, 112, 3), arch="mobilefacenet_y1")
    assert made.framework == "jax"
    ours = run(made.model, faces)
    assert np.abs(unit(ours) - unit(theirs)).max() <= 1e-4
    source = run(original, faces.transpose(0, 3, 1, 2))
    assert np.abs(unit(ours) - unit(source)).max() <= 1e-4


@needs_jax
def test_plain_functions_and_fixed_keywords_are_taken() -> None:
    import jax.numpy as jnp

    def function(weight: Any, images: Any, *, train: bool) -> Any:
        rows = images.reshape(images.shape[0], -1) @ weight
        return rows * jnp.nan if train else jnp.tanh(rows)

    weight = np.random.default_rng(1).normal(size=(8 * 8 * 3, 5)).astype(np.float32)
    made = export(function, weight, (8, 8, 3), settings={"train": False})
    images = np.random.default_rng(2).random((4, 8, 8, 3), dtype=np.float32)
    assert np.abs(run(made.model, images) - np.tanh(images.reshape(4, -1) @ weight)).max() < 1e-5
    with pytest.raises(UnsupportedModel, match="differs"):
        export(function, weight, (8, 8, 3), settings={"train": True})


@needs_jax
def test_what_cannot_be_exported_is_said() -> None:
    with pytest.raises(SpecError, match="variables"):
        export(mobilefacenet())
    with pytest.raises(SpecError, match="function"):
        export("network")
    with pytest.raises(SpecError, match="pictures"):
        export(lambda images: images, input_shape=(7, 7))
    with pytest.raises(UnsupportedModel, match="one row"):
        export(lambda images: images * 2, input_shape=(8, 8, 3))


@pytest.fixture
def without_jax(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "jax2onnx", None)
    yield


def test_a_missing_extra_is_named(without_jax: None) -> None:
    with pytest.raises(MissingExtra, match=r"onnxfr\[jax\]"):
        export(lambda images: images)
