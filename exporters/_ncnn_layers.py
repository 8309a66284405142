"""ncnn's layers as ONNX nodes.

Settings are numbered as in ncnn's own files; a missing one has the default given here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from onnxfr.errors import UnreadableModel, UnsupportedModel
from onnxfr.exporters import _layers as layers
from onnxfr.exporters._graph_writer import GraphWriter
from onnxfr.exporters._ncnn_broadcasting import lined_up
from onnxfr.exporters._ncnn_weights import SAME_UPPER, Layer, Stored, memory_shape

_SAME_LOWER = -234


Inputs = Sequence[str]
Arrays = Sequence[Stored]
Writer = Callable[[GraphWriter, Layer, Inputs, Arrays], str]
LAYERS: dict[str, Writer] = {}


def _writes(*kinds: str) -> Callable[[Writer], Writer]:
    def decorate(function: Writer) -> Writer:
        LAYERS.update(dict.fromkeys(kinds, function))
        return function

    return decorate


@_writes("Convolution", "ConvolutionDepthWise")
def _convolution(graph: GraphWriter, layer: Layer, inputs: Inputs, stored: Arrays) -> str:
    filters, width = layer.integer(0, 0), layer.integer(1, 0)
    height = layer.integer(11, width)
    group = layer.integer(7, 1) if layer.kind == "ConvolutionDepthWise" else 1
    if len(graph.shape(inputs[0])) == 2 and (height, width, group) == (1, 1, 1):
        # after a global pooling ncnn has one axis left, and takes the layer for an InnerProduct
        return _dense(graph, layer, inputs, stored)
    stride = (layer.integer(13, layer.integer(3, 1)), layer.integer(3, 1))
    dilation = (layer.integer(12, layer.integer(2, 1)), layer.integer(2, 1))
    left = layer.integer(4, 0)
    top = layer.integer(14, left)
    pads = (top, left, layer.integer(16, top), layer.integer(15, left))
    sides = graph.sides(inputs[0])
    if left in (SAME_UPPER, _SAME_LOWER):
        pads = layers.same_pads((sides[1], sides[2]), (height, width), stride, dilation)
        if left == _SAME_LOWER:
            pads = (pads[2], pads[3], pads[0], pads[1])
    if layer.number(18, 0.0) != 0.0:
        raise UnsupportedModel(f"convolution {layer.name!r} pads with another value than zero")
    weight = _shaped(layer, stored[0], (filters, sides[0] // max(group, 1), height, width))
    answer = layers.conv2d(
        graph,
        inputs[0],
        weight,
        stored[1] if len(stored) > 1 else None,
        stride=stride,
        pads=pads,
        dilation=dilation,
        group=group,
        name=layer.name,
    )
    return _activated(graph, layer, answer)


def _shaped(layer: Layer, values: Stored, shape: tuple[int, ...]) -> Stored:
    if min(shape) < 0 or np.prod(shape, dtype=object) != values.size:
        raise UnreadableModel(
            f"layer {layer.name!r} stores {values.size} weights, its shape needs {shape}"
        )
    return values.reshape(shape)


@_writes("InnerProduct")
def _dense(graph: GraphWriter, layer: Layer, inputs: Inputs, stored: Arrays) -> str:
    answers = layer.integer(0, 0)
    weight = _shaped(layer, stored[0], (answers, stored[0].size // max(answers, 1)))
    bias = stored[1] if len(stored) > 1 else None
    return _activated(graph, layer, layers.dense(graph, inputs[0], weight, bias, layer.name))


def _activated(graph: GraphWriter, layer: Layer, x: str) -> str:
    """Add the activation that ncnn's optimiser merges into a layer."""
    numbers = layer.settings.get(10, ())
    kind = layer.integer(9, 0)
    needed = {2: 1, 3: 2, 6: 2}.get(kind, 0)
    if len(numbers) < needed:
        raise UnreadableModel(f"the activation of {layer.name!r} lacks its numbers")
    match kind:
        case 0:
            return x
        case 1:
            return graph.add("Relu", [x])
        case 2:
            return graph.add("LeakyRelu", [x], {"alpha": numbers[0]})
        case 3:
            return _clipped(graph, x, numbers[0], numbers[1])
        case 4:
            return graph.add("Sigmoid", [x])
        case 5:
            return graph.add("Mul", [x, graph.add("Tanh", [graph.add("Softplus", [x])])])
        case 6:
            return _hard_swish(graph, x, numbers[0], numbers[1])
    raise UnsupportedModel(f"layer {layer.name!r} has the unknown activation {kind}")


def _clipped(graph: GraphWriter, x: str, low: float, high: float) -> str:
    ends = [graph.weight(np.asarray(end, dtype=np.float32)) for end in (low, high)]
    return graph.add("Clip", [x, *ends])


def _hard_swish(graph: GraphWriter, x: str, alpha: float, beta: float) -> str:
    gate = graph.add("HardSigmoid", [x], {"alpha": alpha, "beta": beta})
    return graph.add("Mul", [x, gate])


@_writes("BatchNorm")
def _batch_norm(graph: GraphWriter, layer: Layer, inputs: Inputs, stored: Arrays) -> str:
    scale, mean, variance, bias = stored
    parts = {"scale": scale, "mean": mean, "variance": variance, "bias": bias}
    return layers.batch_norm(graph, inputs[0], **parts, eps=layer.number(1, 0.0), name=layer.name)


@_writes("PReLU")
def _prelu(graph: GraphWriter, layer: Layer, inputs: Inputs, stored: Arrays) -> str:
    return layers.prelu(graph, inputs[0], stored[0], layer.name)


@_writes("Scale")
def _scale(graph: GraphWriter, layer: Layer, inputs: Inputs, stored: Arrays) -> str:
    if not stored:
        return graph.add("Mul", lined_up(graph, inputs), name=layer.name)
    shift = stored[1] if len(stored) > 1 else None
    return layers.scale_shift(graph, inputs[0], stored[0], shift, layer.name)


@_writes("Bias")
def _bias(graph: GraphWriter, layer: Layer, inputs: Sequence[str], stored: Sequence[Stored]) -> str:
    return layers.scale_shift(graph, inputs[0], None, stored[0], layer.name)


@_writes("Pooling")
def _pooling(graph: GraphWriter, layer: Layer, inputs: Inputs, stored: Arrays) -> str:
    kind: layers.PoolKind = "average" if layer.integer(0, 0) else "max"
    if layer.integer(4, 0):
        # ncnn answers with one axis here, which a later reshape would notice
        return layers.flatten(graph, layers.global_pool(graph, inputs[0], kind))
    if layer.integer(7, 0):
        raise UnsupportedModel(f"pooling {layer.name!r} is adaptive, which has no ONNX form here")
    width, across, left = layer.integer(1, 0), layer.integer(2, 1), layer.integer(3, 0)
    kernel, stride = (layer.integer(11, width), width), (layer.integer(12, across), across)
    top = layer.integer(13, left)
    pads = (top, left, layer.integer(15, top), layer.integer(14, left))
    mode = layer.integer(5, 0)
    if mode in (2, 3):
        sides = graph.sides(inputs[0])
        pads = layers.same_pads((sides[1], sides[2]), kernel, stride)
        pads = pads if mode == 2 else (pads[2], pads[3], pads[0], pads[1])
    return layers.pool(
        graph,
        inputs[0],
        kind,
        kernel,
        stride,
        pads,
        rounds_up=mode == 0,
        counts_pads=bool(layer.integer(6, 0)),
        name=layer.name,
    )


_BINARY = {0: "Add", 1: "Sub", 2: "Mul", 3: "Div", 4: "Max", 5: "Min", 6: "Pow", 7: "Sub", 8: "Div"}
_REVERSED = (7, 8)


@_writes("BinaryOp")
def _binary(graph: GraphWriter, layer: Layer, inputs: Inputs, stored: Arrays) -> str:
    kind = layer.integer(0, 0)
    if kind not in _BINARY:
        raise UnsupportedModel(f"BinaryOp {layer.name!r} has the unknown kind {kind}")
    values = lined_up(graph, inputs)
    if layer.integer(1, 0):
        values.append(graph.weight(np.asarray(layer.number(2, 0.0), dtype=np.float32)))
    values = values[::-1] if kind in _REVERSED else values
    return graph.add(_BINARY[kind], values, name=layer.name)


@_writes("Eltwise")
def _eltwise(graph: GraphWriter, layer: Layer, inputs: Inputs, stored: Arrays) -> str:
    factors = layer.settings.get(1, ())
    values = list(inputs)
    if layer.integer(0, 0) == 1 and factors:
        if len(factors) != len(values):
            raise UnreadableModel(f"Eltwise {layer.name!r} has {len(factors)} factors")
        numbers = [graph.weight(np.asarray(f, dtype=np.float32)) for f in factors]
        pairs = zip(values, numbers, strict=True)
        values = [graph.add("Mul", [value, factor]) for value, factor in pairs]
    operator = {0: "Mul", 1: "Add", 2: "Max"}.get(layer.integer(0, 0))
    if operator is None:
        raise UnsupportedModel(f"Eltwise {layer.name!r} has an unknown kind")
    answer = values[0]
    for value in values[1:]:
        answer = graph.add(operator, [answer, value], name=layer.name)
    return answer


@_writes("Split", "Dropout", "Noop")
def _same(graph: GraphWriter, layer: Layer, inputs: Sequence[str], stored: Sequence[Stored]) -> str:
    return inputs[0]


@_writes("Flatten")
def _flatten(graph: GraphWriter, layer: Layer, inputs: Inputs, stored: Arrays) -> str:
    return layers.flatten(graph, inputs[0])


@_writes("Concat")
def _concat(graph: GraphWriter, layer: Layer, inputs: Inputs, stored: Arrays) -> str:
    axis = layer.integer(0, 0)
    return graph.add("Concat", inputs, {"axis": axis + 1 if axis >= 0 else axis}, layer.name)


@_writes("Softmax")
def _softmax(graph: GraphWriter, layer: Layer, inputs: Inputs, stored: Arrays) -> str:
    axis = layer.integer(0, 0)
    return graph.add("Softmax", inputs, {"axis": axis + 1 if axis >= 0 else axis}, layer.name)


@_writes("ReLU")
def _relu(graph: GraphWriter, layer: Layer, inputs: Sequence[str], stored: Sequence[Stored]) -> str:
    slope = layer.number(0, 0.0)
    if slope:
        return graph.add("LeakyRelu", inputs, {"alpha": slope}, layer.name)
    return graph.add("Relu", inputs, name=layer.name)


_PLAIN = {"Sigmoid": "Sigmoid", "TanH": "Tanh", "AbsVal": "Abs", "Softplus": "Softplus"}


@_writes(*_PLAIN)
def _plain(graph: GraphWriter, layer: Layer, inputs: Inputs, stored: Arrays) -> str:
    return graph.add(_PLAIN[layer.kind], inputs, name=layer.name)


@_writes("Swish")
def _swish(graph: GraphWriter, layer: Layer, inputs: Inputs, stored: Arrays) -> str:
    return graph.add("Mul", [inputs[0], graph.add("Sigmoid", inputs)], name=layer.name)


@_writes("HardSwish")
def _hard_swish_layer(graph: GraphWriter, layer: Layer, inputs: Inputs, stored: Arrays) -> str:
    return _hard_swish(graph, inputs[0], layer.number(0, 0.2), layer.number(1, 0.5))


@_writes("Clip")
def _clip(graph: GraphWriter, layer: Layer, inputs: Sequence[str], stored: Sequence[Stored]) -> str:
    limits = np.finfo(np.float32)
    low, high = layer.number(0, float(limits.min)), layer.number(1, float(limits.max))
    return _clipped(graph, inputs[0], low, high)


@_writes("Reshape")
def _reshape(graph: GraphWriter, layer: Layer, inputs: Inputs, stored: Arrays) -> str:
    sides = [layer.integer(key, -233) for key in (2, 11, 1, 0)]
    kept = [side for side in sides if side != -233]
    if not kept or min(kept) < -1:
        raise UnsupportedModel(f"Reshape {layer.name!r} to {kept} has no ONNX form here")
    if 0 in kept:
        raise UnsupportedModel(f"Reshape {layer.name!r} copies sides, which is not supported here")
    return graph.add("Reshape", [inputs[0], graph.integers((0, *kept))], name=layer.name)


@_writes("Normalize")
def _normalize(graph: GraphWriter, layer: Layer, inputs: Inputs, stored: Arrays) -> str:
    every = tuple(range(1, len(graph.shape(inputs[0]))))
    across_space, across_channels = layer.integer(0, 0), layer.integer(4, 1)
    if not across_channels or layer.integer(9, 0) != 0:
        raise UnsupportedModel(f"Normalize {layer.name!r} is of a kind with no ONNX form here")
    axes = every if across_space else (1,)
    unit = layers.l2_normalise(graph, inputs[0], layer.number(2, 1e-4), axes)
    return layers.scale_shift(graph, unit, stored[0], None, layer.name)


@_writes("MemoryData")
def _memory(graph: GraphWriter, layer: Layer, inputs: Inputs, stored: Arrays) -> str:
    return graph.weight(stored[0].reshape(1, *memory_shape(layer)), layer.name)
