"""MXNet's operators as ONNX nodes, one small function each, with MXNet's defaults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from onnxfr.errors import UnreadableModel, UnsupportedModel
from onnxfr.exporters import _layers as layers
from onnxfr.exporters._graph_writer import GraphWriter
from onnxfr.exporters._mxnet_layer import Layer

Array = NDArray[Any]
Operand = str | Array
"""A computed value of the graph, or stored numbers."""


Operands = Sequence[Operand | None]
Writer = Callable[[GraphWriter, Layer, Operands], str]
OPERATORS: dict[str, Writer] = {}


def _writes(*names: str) -> Callable[[Writer], Writer]:
    def decorate(function: Writer) -> Writer:
        OPERATORS.update(dict.fromkeys(names, function))
        return function

    return decorate


def _value(graph: GraphWriter, layer: Layer, operands: Operands, place: int = 0) -> str:
    operand = operands[place] if place < len(operands) else None
    if operand is None:
        raise UnreadableModel(f"{layer.op} {layer.name!r} lacks its input number {place}")
    return operand if isinstance(operand, str) else graph.weight(operand, layer.name)


def _stored(layer: Layer, operands: Operands, place: int) -> Array:
    operand = operands[place] if place < len(operands) else None
    if operand is None or isinstance(operand, str):
        raise UnreadableModel(
            f"{layer.op} {layer.name!r} lacks the stored numbers of input {place}"
        )
    return operand


_LAYOUTS = ("None", "NCHW")


@_writes("Convolution", "Convolution_v1")
def _convolution(graph: GraphWriter, layer: Layer, operands: Operands) -> str:
    layer.word("layout", *_LAYOUTS)
    pad = layer.pair("pad", 0)
    return layers.conv2d(
        graph,
        _value(graph, layer, operands),
        _stored(layer, operands, 1),
        None if layer.flag("no_bias", False) else _stored(layer, operands, 2),
        stride=layer.pair("stride", 1),
        pads=(*pad, *pad),
        dilation=layer.pair("dilate", 1),
        group=int(layer.number("num_group", 1)),
        name=layer.name,
    )


@_writes("BatchNorm", "BatchNorm_v1", "CuDNNBatchNorm")
def _batch_norm(graph: GraphWriter, layer: Layer, operands: Operands) -> str:
    if int(layer.number("axis", 1)) != 1:
        raise UnsupportedModel(f"BatchNorm {layer.name!r} normalises another axis than channels")
    gamma = _stored(layer, operands, 1)
    return layers.batch_norm(
        graph,
        _value(graph, layer, operands),
        scale=np.ones_like(gamma) if layer.flag("fix_gamma", True) else gamma,
        bias=_stored(layer, operands, 2),
        mean=_stored(layer, operands, 3),
        variance=_stored(layer, operands, 4),
        eps=layer.number("eps", 1e-3),
        name=layer.name,
    )


@_writes("LeakyReLU")
def _leaky(graph: GraphWriter, layer: Layer, operands: Operands) -> str:
    x = _value(graph, layer, operands)
    kind = layer.settings.get("act_type", "leaky")
    slope = layer.number("slope", 0.25)
    if kind == "prelu":
        return layers.prelu(graph, x, _stored(layer, operands, 1), layer.name)
    if kind == "leaky":
        return graph.add("LeakyRelu", [x], {"alpha": slope}, layer.name)
    if kind == "elu":
        return graph.add("Elu", [x], {"alpha": slope}, layer.name)
    raise UnsupportedModel(f"LeakyReLU {layer.name!r} of kind {kind!r} has no ONNX form here")


_ACTIVATIONS = {
    "relu": "Relu",
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "softrelu": "Softplus",
    "softsign": "Softsign",
}


@_writes("Activation", "relu", "sigmoid", "tanh")
def _activation(graph: GraphWriter, layer: Layer, operands: Operands) -> str:
    kind = layer.settings.get("act_type", layer.op)
    if kind not in _ACTIVATIONS:
        raise UnsupportedModel(f"Activation {layer.name!r} of kind {kind!r} has no ONNX form here")
    return graph.add(_ACTIVATIONS[kind], [_value(graph, layer, operands)], name=layer.name)


@_writes("FullyConnected")
def _dense(graph: GraphWriter, layer: Layer, operands: Operands) -> str:
    if not layer.flag("flatten", True):
        raise UnsupportedModel(f"FullyConnected {layer.name!r} keeps its axes (flatten=False)")
    bias = None if layer.flag("no_bias", False) else _stored(layer, operands, 2)
    weight = _stored(layer, operands, 1)
    return layers.dense(graph, _value(graph, layer, operands), weight, bias, layer.name)


@_writes("Flatten", "flatten")
def _flatten(graph: GraphWriter, layer: Layer, operands: Operands) -> str:
    return layers.flatten(graph, _value(graph, layer, operands))


@_writes("Pooling", "Pooling_v1")
def _pooling(graph: GraphWriter, layer: Layer, operands: Operands) -> str:
    kinds: dict[str, Literal["max", "average"]] = {"max": "max", "avg": "average"}
    kind = kinds.get(layer.settings.get("pool_type", "max"))
    if kind is None:
        raise UnsupportedModel(f"Pooling {layer.name!r} is neither of maxima nor of means")
    layer.word("layout", *_LAYOUTS)
    x = _value(graph, layer, operands)
    if layer.flag("global_pool", False):
        return layers.global_pool(graph, x, kind)
    pad = layer.pair("pad", 0)
    return layers.pool(
        graph,
        x,
        kind,
        layer.pair("kernel", 1),
        layer.pair("stride", 1),
        (*pad, *pad),
        rounds_up=layer.word("pooling_convention", "valid", "full") == "full",
        counts_pads=layer.flag("count_include_pad", True),
        name=layer.name,
    )


_BINARY = {
    "Add": ("elemwise_add", "_plus", "_Plus", "broadcast_add", "broadcast_plus", "_add"),
    "Sub": ("elemwise_sub", "_minus", "_Minus", "broadcast_sub", "broadcast_minus", "_sub"),
    "Mul": ("elemwise_mul", "_mul", "_Mul", "broadcast_mul"),
    "Div": ("elemwise_div", "_div", "_Div", "broadcast_div"),
    "Max": ("_maximum", "_Maximum", "broadcast_maximum"),
    "Min": ("_minimum", "_Minimum", "broadcast_minimum"),
    "Sum": ("add_n", "ElementWiseSum"),
}
_BINARY_OF = {name: operator for operator, names in _BINARY.items() for name in names}


@_writes(*_BINARY_OF)
def _binary(graph: GraphWriter, layer: Layer, operands: Operands) -> str:
    values = [_value(graph, layer, operands, k) for k in range(len(operands))]
    return graph.add(_BINARY_OF[layer.op], values, name=layer.name)


_SCALAR_OF = {
    "_plus_scalar": ("Add", False),
    "_PlusScalar": ("Add", False),
    "_minus_scalar": ("Sub", False),
    "_MinusScalar": ("Sub", False),
    "_rminus_scalar": ("Sub", True),
    "_mul_scalar": ("Mul", False),
    "_MulScalar": ("Mul", False),
    "_div_scalar": ("Div", False),
    "_DivScalar": ("Div", False),
    "_rdiv_scalar": ("Div", True),
    "_power_scalar": ("Pow", False),
    "_maximum_scalar": ("Max", False),
    "_minimum_scalar": ("Min", False),
}


@_writes(*_SCALAR_OF)
def _scalar(graph: GraphWriter, layer: Layer, operands: Operands) -> str:
    operator, reverse = _SCALAR_OF[layer.op]
    number = np.asarray(layer.number("scalar", 1.0), dtype=np.float32)
    values = [_value(graph, layer, operands), graph.weight(number)]
    return graph.add(operator, values[::-1] if reverse else values, name=layer.name)


@_writes("Concat", "concat")
def _concat(graph: GraphWriter, layer: Layer, operands: Operands) -> str:
    values = [_value(graph, layer, operands, k) for k in range(len(operands))]
    return graph.add("Concat", values, {"axis": int(layer.number("dim", 1))}, layer.name)


@_writes(
    "Dropout", "identity", "_copy", "BlockGrad", "Cast", "amp_cast", "IdentityAttachKLSparseReg"
)
def _same(graph: GraphWriter, layer: Layer, operands: Operands) -> str:
    return _value(graph, layer, operands)


@_writes("L2Normalization")
def _l2(graph: GraphWriter, layer: Layer, operands: Operands) -> str:
    x = _value(graph, layer, operands)
    every = tuple(range(1, len(graph.shape(x))))
    axes = {"instance": every, "channel": (1,), "spatial": every[1:]}
    mode = layer.settings.get("mode", "instance")
    if mode not in axes or not axes[mode]:
        raise UnsupportedModel(f"L2Normalization {layer.name!r} has the unknown mode {mode!r}")
    return layers.l2_normalise(graph, x, layer.number("eps", 1e-10), axes[mode])


@_writes("SoftmaxOutput", "softmax", "SoftmaxActivation", "Softmax")
def _softmax(graph: GraphWriter, layer: Layer, operands: Operands) -> str:
    axis = int(layer.number("axis", -1 if layer.op == "softmax" else 1))
    return graph.add("Softmax", [_value(graph, layer, operands)], {"axis": axis}, layer.name)


@_writes("Reshape", "reshape")
def _reshape(graph: GraphWriter, layer: Layer, operands: Operands) -> str:
    shape = layer.integers("shape", ())
    if not shape or min(shape) < -1 or layer.flag("reverse", False):
        raise UnsupportedModel(f"Reshape {layer.name!r} to {shape} uses MXNet's special codes")
    x = _value(graph, layer, operands)
    return graph.add("Reshape", [x, graph.integers(shape)], name=layer.name)


@_writes("transpose")
def _transpose(graph: GraphWriter, layer: Layer, operands: Operands) -> str:
    x = _value(graph, layer, operands)
    axes = layer.integers("axes", tuple(range(len(graph.shape(x))))[::-1])
    return graph.add("Transpose", [x], {"perm": axes}, layer.name)


@_writes("mean", "sum")
def _reduce(graph: GraphWriter, layer: Layer, operands: Operands) -> str:
    x = _value(graph, layer, operands)
    every = tuple(range(len(graph.shape(x))))
    axes = layer.integers("axis", every)
    if layer.flag("exclude", False) and axes != every:
        axes = tuple(sorted(set(every) - {axis % len(every) for axis in axes}))
    keep = {"keepdims": int(layer.flag("keepdims", False))}
    if layer.op == "mean":
        return graph.add("ReduceMean", [x], {"axes": axes, **keep}, layer.name)
    return graph.add("ReduceSum", [x, graph.integers(axes)], keep, layer.name)


@_writes("clip")
def _clip(graph: GraphWriter, layer: Layer, operands: Operands) -> str:
    bounds = [layer.number("a_min", -np.inf), layer.number("a_max", np.inf)]
    ends = [graph.weight(np.asarray(bound, dtype=np.float32)) for bound in bounds]
    return graph.add("Clip", [_value(graph, layer, operands), *ends], name=layer.name)
