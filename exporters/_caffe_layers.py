"""Caffe's layers as ONNX nodes, with Caffe's defaults and its rounding of pooling windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onnxfr.errors import UnreadableModel, UnsupportedModel
from onnxfr.exporters import _layers as layers
from onnxfr.exporters._caffe_messages import Tree
from onnxfr.exporters._caffe_net import Array, Layer
from onnxfr.exporters._graph_writer import GraphWriter

Inputs = Sequence[str]
Blobs = Sequence[Array]
Writer = Callable[[GraphWriter, Layer, Inputs, Blobs], str]
LAYERS: dict[str, Writer] = {}


def _writes(*kinds: str) -> Callable[[Writer], Writer]:
    def decorate(function: Writer) -> Writer:
        LAYERS.update(dict.fromkeys(kinds, function))
        return function

    return decorate


def _number(tree: Tree, key: str, default: float) -> float:
    found = tree.get(key, ())
    if found and not isinstance(found[0], (int, float)):
        raise UnreadableModel(f"the setting {key} is no number: {found[0]!r}")
    return found[0] if found else default


def _pair(tree: Tree, key: str, default: int) -> tuple[int, int]:
    """Return a setting given once, twice, or as ``_h`` and ``_w``."""
    stem = key.removesuffix("_size")
    if f"{stem}_h" in tree or f"{stem}_w" in tree:
        return int(_number(tree, f"{stem}_h", default)), int(_number(tree, f"{stem}_w", default))
    values = [int(v) for v in tree.get(key, ())] or [default]
    return values[0], values[-1]


def _need(layer: Layer, blobs: Sequence[Array], count: int) -> None:
    if len(blobs) < count:
        raise UnreadableModel(
            f"layer {layer.name!r} ({layer.kind}) needs {count} stored arrays, the caffemodel has "
            f"{len(blobs)} for it"
        )


@_writes("Convolution", "DepthwiseConvolution", "ConvolutionDepthwise", "DepthWiseConvolution")
def _convolution(graph: GraphWriter, layer: Layer, inputs: Inputs, blobs: Blobs) -> str:
    settings = layer.part("convolution_param")
    biased = bool(_number(settings, "bias_term", 1))
    _need(layer, blobs, 2 if biased else 1)
    channels = graph.sides(inputs[0])[0]
    default = 1 if layer.kind == "Convolution" else channels
    group = int(_number(settings, "group", default))
    pad = _pair(settings, "pad", 0)
    return layers.conv2d(
        graph,
        inputs[0],
        blobs[0],
        blobs[1].reshape(-1) if biased else None,
        stride=_pair(settings, "stride", 1),
        pads=(*pad, *pad),
        dilation=_pair(settings, "dilation", 1),
        group=group,
        name=layer.name,
    )


@_writes("BatchNorm")
def _batch_norm(graph: GraphWriter, layer: Layer, inputs: Inputs, blobs: Blobs) -> str:
    _need(layer, blobs, 3)
    counted = float(blobs[2].reshape(-1)[0]) if blobs[2].size else 0.0
    factor = 1 / counted if counted else 0.0
    mean, variance = blobs[0].reshape(-1) * factor, blobs[1].reshape(-1) * factor
    eps = _number(layer.part("batch_norm_param"), "eps", 1e-5)
    one, zero = np.ones_like(mean), np.zeros_like(mean)
    parts = {"scale": one, "bias": zero, "mean": mean, "variance": variance}
    return layers.batch_norm(graph, inputs[0], **parts, eps=eps, name=layer.name)


@_writes("Scale")
def _scale(graph: GraphWriter, layer: Layer, inputs: Inputs, blobs: Blobs) -> str:
    settings = layer.part("scale_param")
    if len(inputs) == 2:
        return _gated(graph, layer, inputs)
    if _number(settings, "axis", 1) != 1 or _number(settings, "num_axes", 1) not in (1, 0):
        raise UnsupportedModel(f"Scale {layer.name!r} scales other axes than channels")
    biased = bool(_number(settings, "bias_term", 0))
    _need(layer, blobs, 2 if biased else 1)
    return layers.scale_shift(graph, inputs[0], blobs[0], blobs[1] if biased else None, layer.name)


def _gated(graph: GraphWriter, layer: Layer, inputs: Sequence[str]) -> str:
    """Multiply with a computed value per channel, as squeeze-and-excitation blocks do."""
    gate = inputs[1]
    missing = len(graph.shape(inputs[0])) - len(graph.shape(gate))
    if missing > 0:
        axes = tuple(range(len(graph.shape(gate)), len(graph.shape(inputs[0]))))
        gate = graph.add("Unsqueeze", [gate, graph.integers(axes)])
    return graph.add("Mul", [inputs[0], gate], name=layer.name)


@_writes("PReLU")
def _prelu(graph: GraphWriter, layer: Layer, inputs: Inputs, blobs: Blobs) -> str:
    _need(layer, blobs, 1)
    return layers.prelu(graph, inputs[0], blobs[0], layer.name)


@_writes("ReLU")
def _relu(graph: GraphWriter, layer: Layer, inputs: Inputs, blobs: Blobs) -> str:
    slope = _number(layer.part("relu_param"), "negative_slope", 0.0)
    if slope:
        return graph.add("LeakyRelu", inputs, {"alpha": float(slope)}, layer.name)
    return graph.add("Relu", inputs, name=layer.name)


@_writes("ELU")
def _elu(graph: GraphWriter, layer: Layer, inputs: Inputs, blobs: Blobs) -> str:
    alpha = float(_number(layer.part("elu_param"), "alpha", 1.0))
    return graph.add("Elu", inputs, {"alpha": alpha}, layer.name)


@_writes("InnerProduct")
def _dense(graph: GraphWriter, layer: Layer, inputs: Inputs, blobs: Blobs) -> str:
    settings = layer.part("inner_product_param")
    biased = bool(_number(settings, "bias_term", 1))
    _need(layer, blobs, 2 if biased else 1)
    weight = blobs[0].reshape(blobs[0].shape[-2:]) if blobs[0].ndim >= 2 else blobs[0]
    if _number(settings, "transpose", 0):
        weight = weight.T
    bias = blobs[1].reshape(-1) if biased else None
    return layers.dense(graph, inputs[0], weight, bias, layer.name)


_POOLS: dict[Any, layers.PoolKind] = {
    0: "max",
    "MAX": "max",
    1: "average",
    "AVE": "average",
}


@_writes("Pooling")
def _pooling(graph: GraphWriter, layer: Layer, inputs: Inputs, blobs: Blobs) -> str:
    settings = layer.part("pooling_param")
    kind = _POOLS.get(settings.get("pool", [0])[0])
    if kind is None:
        raise UnsupportedModel(f"Pooling {layer.name!r} is neither of maxima nor of means")
    if _number(settings, "global_pooling", 0):
        return layers.global_pool(graph, inputs[0], kind)
    pad = _pair(settings, "pad", 0)
    rounding = settings.get("round_mode", [0])[0]
    return layers.pool(
        graph,
        inputs[0],
        kind,
        _pair(settings, "kernel_size", 1),
        _pair(settings, "stride", 1),
        (*pad, *pad),
        rounds_up=rounding in (0, "CEIL"),
        name=layer.name,
    )


_ELTWISE = {0: "Mul", "PROD": "Mul", 1: "Add", "SUM": "Add", 2: "Max", "MAX": "Max"}


@_writes("Eltwise")
def _eltwise(graph: GraphWriter, layer: Layer, inputs: Inputs, blobs: Blobs) -> str:
    settings = layer.part("eltwise_param")
    operator = _ELTWISE.get(settings.get("operation", [1])[0])
    if operator is None:
        raise UnsupportedModel(f"Eltwise {layer.name!r} has an unknown operation")
    factors = [float(v) for v in settings.get("coeff", ())]
    values = list(inputs)
    if factors and operator == "Add":
        if len(factors) != len(values):
            raise UnreadableModel(f"Eltwise {layer.name!r} has {len(factors)} factors")
        numbers = [graph.weight(np.asarray(f, dtype=np.float32)) for f in factors]
        pairs = zip(values, numbers, strict=True)
        values = [graph.add("Mul", [value, factor]) for value, factor in pairs]
    answer = values[0]
    for value in values[1:]:
        answer = graph.add(operator, [answer, value], name=layer.name)
    return answer


@_writes("Concat")
def _concat(graph: GraphWriter, layer: Layer, inputs: Inputs, blobs: Blobs) -> str:
    settings = layer.part("concat_param")
    axis = int(_number(settings, "axis", _number(settings, "concat_dim", 1)))
    return graph.add("Concat", inputs, {"axis": axis}, layer.name)


@_writes("Split", "Dropout")
def _same(graph: GraphWriter, layer: Layer, inputs: Inputs, blobs: Blobs) -> str:
    return inputs[0]


@_writes("Flatten")
def _flatten(graph: GraphWriter, layer: Layer, inputs: Inputs, blobs: Blobs) -> str:
    return layers.flatten(graph, inputs[0])


@_writes("Softmax")
def _softmax(graph: GraphWriter, layer: Layer, inputs: Inputs, blobs: Blobs) -> str:
    axis = int(_number(layer.part("softmax_param"), "axis", 1))
    return graph.add("Softmax", inputs, {"axis": axis}, layer.name)


@_writes("Sigmoid", "TanH", "AbsVal")
def _plain(graph: GraphWriter, layer: Layer, inputs: Inputs, blobs: Blobs) -> str:
    operator = {"Sigmoid": "Sigmoid", "TanH": "Tanh", "AbsVal": "Abs"}[layer.kind]
    return graph.add(operator, inputs, name=layer.name)


@_writes("Power")
def _power(graph: GraphWriter, layer: Layer, inputs: Inputs, blobs: Blobs) -> str:
    settings = layer.part("power_param")
    scale, shift = _number(settings, "scale", 1.0), _number(settings, "shift", 0.0)
    power = _number(settings, "power", 1.0)
    answer = layers.scale_shift(graph, inputs[0], np.array([scale]), np.array([shift]), layer.name)
    if power == 1.0:
        return answer
    return graph.add("Pow", [answer, graph.weight(np.asarray(power, dtype=np.float32))])


@_writes("LRN")
def _lrn(graph: GraphWriter, layer: Layer, inputs: Inputs, blobs: Blobs) -> str:
    settings = layer.part("lrn_param")
    if settings.get("norm_region", [0])[0] not in (0, "ACROSS_CHANNELS"):
        raise UnsupportedModel(f"LRN {layer.name!r} normalises within channels")
    attributes = {
        "size": int(_number(settings, "local_size", 5)),
        "alpha": float(_number(settings, "alpha", 1.0)),
        "beta": float(_number(settings, "beta", 0.75)),
        "bias": float(_number(settings, "k", 1.0)),
    }
    return graph.add("LRN", inputs, attributes, layer.name)


@_writes("Reshape")
def _reshape(graph: GraphWriter, layer: Layer, inputs: Inputs, blobs: Blobs) -> str:
    settings = layer.part("reshape_param")
    shapes = settings.get("shape", [])
    if not shapes or _number(settings, "axis", 0) or _number(settings, "num_axes", -1) != -1:
        raise UnsupportedModel(f"Reshape {layer.name!r} reshapes some axes only")
    sides = [int(v) for v in shapes[0].get("dim", ())]
    return graph.add("Reshape", [inputs[0], graph.integers((0, *sides[1:]))], name=layer.name)


@_writes("Normalize")
def _normalize(graph: GraphWriter, layer: Layer, inputs: Inputs, blobs: Blobs) -> str:
    """Write the unit-length layer that face forks of Caffe add after the embedding."""
    if blobs:
        raise UnsupportedModel(f"Normalize {layer.name!r} has a learned scale (detection fork)")
    axes = tuple(range(1, len(graph.shape(inputs[0]))))
    return layers.l2_normalise(graph, inputs[0], 1e-10, axes)
