"""TensorFlow's operators as ONNX nodes; four-axis values are kept with channels first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from onnxfr.errors import UnreadableModel, UnsupportedModel
from onnxfr.exporters import _layers as layers
from onnxfr.exporters._graph_writer import GraphWriter

Array = NDArray[Any]
_TO_FIRST, _TO_LAST = (0, 3, 1, 2), (0, 2, 3, 1)


@dataclass(frozen=True)
class Value:
    """A computed value; ``turned`` where TensorFlow's NHWC is stored as NCHW."""

    name: str
    turned: bool = False

    def plain(self, graph: GraphWriter) -> Value:
        """Return the value in TensorFlow's own order of axes."""
        if not self.turned:
            return self
        return Value(graph.add("Transpose", [self.name], {"perm": _TO_LAST}))

    def first(self, graph: GraphWriter) -> str:
        """Return the name of the value with channels first."""
        if self.turned:
            return self.name
        if len(graph.shape(self.name)) != 4:
            raise UnsupportedModel(f"{self.name!r} is no picture: {graph.shape(self.name)}")
        return graph.add("Transpose", [self.name], {"perm": _TO_FIRST})


Operand = Value | Array


@dataclass(frozen=True)
class Node:
    """One operator of the graph."""

    op: str
    name: str
    inputs: tuple[str, ...]
    attributes: Mapping[str, Any]

    def flag(self, key: str) -> bool:
        """Return a boolean attribute, false where absent."""
        return bool(self.attributes.get(key) or False)

    def sides(self, key: str) -> tuple[int, int]:
        """Return height and width of an NHWC list such as strides."""
        found = self.attributes.get(key) or [1, 1, 1, 1]
        if len(found) != 4 or found[0] != 1 or found[3] != 1:
            raise UnsupportedModel(f"{self.op} {self.name!r} has {key} {found}")
        return int(found[1]), int(found[2])


Operands = Sequence[Operand]
Writer = Callable[[GraphWriter, Node, Operands], Operand]
OPERATORS: dict[str, Writer] = {}


def _writes(*names: str) -> Callable[[Writer], Writer]:
    def decorate(function: Writer) -> Writer:
        OPERATORS.update(dict.fromkeys(names, function))
        return function

    return decorate


def _value(node: Node, operands: Operands, place: int = 0) -> Value:
    operand = operands[place] if place < len(operands) else None
    if not isinstance(operand, Value):
        raise UnsupportedModel(f"{node.op} {node.name!r} has no computed input {place}")
    return operand


def _stored(node: Node, operands: Operands, place: int) -> Array:
    operand = operands[place] if place < len(operands) else None
    if operand is None or isinstance(operand, Value):
        raise UnsupportedModel(f"{node.op} {node.name!r} has no stored input {place}")
    return operand


def _pads(
    node: Node, sides: tuple[int, ...], kernel: layers.Pair, dilation: layers.Pair
) -> layers.Pads:
    mode = node.attributes.get("padding")
    if mode == "VALID":
        return 0, 0, 0, 0
    if mode == "SAME":
        return layers.same_pads((sides[1], sides[2]), kernel, node.sides("strides"), dilation)
    explicit = node.attributes.get("explicit_paddings") or []
    if mode == "EXPLICIT" and len(explicit) == 8:
        return explicit[2], explicit[4], explicit[3], explicit[5]
    raise UnsupportedModel(f"{node.op} {node.name!r} pads by {mode!r}")


@_writes(
    "Conv2D", "_FusedConv2D", "FusedConv2D",
    "DepthwiseConv2dNative", "DepthwiseConv2D", "FusedDepthwiseConv2dNative",
)  # fmt: skip
def _convolution(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    if node.attributes.get("data_format", "NHWC") != "NHWC":
        raise UnsupportedModel(f"{node.op} {node.name!r} is not NHWC")
    x = _value(node, operands).first(graph)
    kernel = _stored(node, operands, 1)
    if kernel.ndim != 4:
        raise UnreadableModel(f"the kernel of {node.name!r} has the shape {kernel.shape}")
    height, width, channels, multiple = kernel.shape
    group = 1
    if "Depthwise" in node.op:
        group = channels
        weight = kernel.transpose(2, 3, 0, 1).reshape(channels * multiple, 1, height, width)
    else:
        weight = kernel.transpose(3, 2, 0, 1)
    dilation = node.sides("dilations")
    answer = layers.conv2d(
        graph,
        x,
        weight,
        None,
        stride=node.sides("strides"),
        pads=_pads(node, graph.sides(x), (height, width), dilation),
        dilation=dilation,
        group=group,
        name=node.name,
    )
    return _fused(graph, node, Value(answer, True), operands[2:])


def _fused(graph: GraphWriter, node: Node, x: Value, extra: Operands) -> Value:
    """Add the bias and activation that the converter merged into an operator."""
    left = list(extra)
    for step in node.attributes.get("fused_ops") or []:
        if step == "BiasAdd":
            x = _binary_values(graph, "Add", x, _next(node, left), f"{node.name}/bias")
        elif step == "Prelu":
            slope = np.asarray(_next(node, left)).reshape(-1)
            x = Value(layers.prelu(graph, x.name, slope), x.turned)
        elif step == "LeakyRelu":
            alpha = float(node.attributes.get("leakyrelu_alpha") or 0.2)
            x = Value(graph.add("LeakyRelu", [x.name], {"alpha": alpha}), x.turned)
        elif step == "Relu6":
            x = _clip6(graph, x)
        elif step in _UNARY:
            x = Value(graph.add(_UNARY[step], [x.name]), x.turned)
        elif step not in ("noop", "Identity", "linear"):
            raise UnsupportedModel(f"{node.op} {node.name!r} has the unknown step {step!r} merged")
    return x


def _next(node: Node, left: list[Operand]) -> Array:
    if not left or isinstance(left[0], Value):
        raise UnreadableModel(f"{node.op} {node.name!r} lacks a stored input of a merged step")
    return left.pop(0)  # type: ignore[return-value]


def _clip6(graph: GraphWriter, x: Value) -> Value:
    ends = [graph.weight(np.asarray(end, dtype=np.float32)) for end in (0, 6)]
    return Value(graph.add("Clip", [x.name, *ends]), x.turned)


_BINARY = {
    "Add": "Add",
    "AddV2": "Add",
    "BiasAdd": "Add",
    "Sub": "Sub",
    "Mul": "Mul",
    "RealDiv": "Div",
    "Div": "Div",
    "Maximum": "Max",
    "Minimum": "Min",
    "Pow": "Pow",
}


@_writes(*_BINARY)
def _binary(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    if len(operands) != 2:
        raise UnreadableModel(f"{node.op} {node.name!r} has {len(operands)} inputs")
    return _binary_values(graph, _BINARY[node.op], operands[0], operands[1], node.name)


def _binary_values(
    graph: GraphWriter, operator: str, left: Operand, right: Operand, name: str
) -> Value:
    pair = (left, right)
    turned = any(isinstance(side, Value) and side.turned for side in pair)
    if not any(isinstance(side, Value) for side in pair):
        raise UnsupportedModel(f"{name!r} computes with constants only; fold them first")
    names = [_broadcast(graph, side, turned) for side in pair]
    return Value(graph.add(operator, names, name=name), turned)


def _broadcast(graph: GraphWriter, operand: Operand, turned: bool) -> str:
    if isinstance(operand, Value):
        if not turned or operand.turned:
            return operand.name
        rank = len(graph.shape(operand.name))
        if rank == 4:
            return operand.first(graph)
        raise UnsupportedModel(f"{operand.name!r} with {rank} axes is mixed with a picture")
    if not turned or operand.ndim == 0:
        return graph.weight(operand)
    if operand.ndim > 4:
        raise UnsupportedModel(f"a constant with {operand.ndim} axes is mixed with a picture")
    full = operand.reshape((1,) * (4 - operand.ndim) + operand.shape)
    return graph.weight(full.transpose(_TO_FIRST))


_UNARY = {
    "Relu": "Relu",
    "Sigmoid": "Sigmoid",
    "Tanh": "Tanh",
    "Elu": "Elu",
    "Softplus": "Softplus",
    "Sqrt": "Sqrt",
    "Neg": "Neg",
    "Exp": "Exp",
    "Abs": "Abs",
}


@_writes(*_UNARY)
def _unary(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    x = _value(node, operands)
    return Value(graph.add(_UNARY[node.op], [x.name], name=node.name), x.turned)


@_writes("Square")
def _square(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    x = _value(node, operands)
    return Value(graph.add("Mul", [x.name, x.name], name=node.name), x.turned)


@_writes("Rsqrt")
def _rsqrt(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    x = _value(node, operands)
    root = graph.add("Sqrt", [x.name])
    return Value(graph.add("Reciprocal", [root], name=node.name), x.turned)


@_writes("Relu6")
def _relu6(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    return _clip6(graph, _value(node, operands))


@_writes("LeakyRelu")
def _leaky(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    x = _value(node, operands)
    alpha = node.attributes.get("alpha")
    slope = {"alpha": 0.2 if alpha is None else float(alpha)}
    return Value(graph.add("LeakyRelu", [x.name], slope, node.name), x.turned)


@_writes("Prelu")
def _prelu(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    x = _value(node, operands)
    slope = _broadcast(graph, _stored(node, operands, 1), x.turned)
    return Value(graph.add("PRelu", [x.name, slope], name=node.name), x.turned)


@_writes("Softmax")
def _softmax(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    x = _value(node, operands).plain(graph)
    return Value(graph.add("Softmax", [x.name], {"axis": -1}, node.name))


@_writes("Identity", "StopGradient", "CheckNumerics", "Snapshot", "NoOp")
def _same(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    if not operands:
        raise UnreadableModel(f"{node.op} {node.name!r} has no input")
    return operands[0]


@_writes("MatMul", "_FusedMatMul")
def _matmul(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    x = _value(node, operands).plain(graph)
    if node.flag("transpose_a"):
        raise UnsupportedModel(f"{node.op} {node.name!r} transposes pictures")
    weight = _stored(node, operands, 1)
    turned = weight if node.flag("transpose_b") else weight.T
    answer = Value(layers.dense(graph, x.name, turned, None, node.name))
    return _fused(graph, node, answer, operands[2:])


@_writes("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
def _batch_norm(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    x = _value(node, operands).first(graph)
    scale, bias, mean, variance = (_stored(node, operands, k) for k in range(1, 5))
    parts = {"scale": scale, "bias": bias, "mean": mean, "variance": variance}
    eps = node.attributes.get("epsilon")
    chosen = 1e-4 if eps is None else float(eps)
    return Value(layers.batch_norm(graph, x, **parts, eps=chosen, name=node.name), True)


@_writes("MaxPool", "AvgPool")
def _pool(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    x = _value(node, operands).first(graph)
    kernel = node.sides("ksize")
    kind: Literal["max", "average"] = "max" if node.op == "MaxPool" else "average"
    pads = _pads(node, graph.sides(x), kernel, (1, 1))
    stride = node.sides("strides")
    answer = layers.pool(graph, x, kind, kernel, stride, pads, counts_pads=False, name=node.name)
    return Value(answer, True)


_REDUCE = {"Mean": "ReduceMean", "Max": "ReduceMax", "Sum": "ReduceSum"}


@_writes(*_REDUCE)
def _reduce(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    x = _value(node, operands)
    rank = len(graph.shape(x.name))
    keep = node.flag("keep_dims")
    asked = [int(axis) % rank for axis in _stored(node, operands, 1).reshape(-1)]
    stays_turned = x.turned and (keep or sorted(asked) != [1, 2])
    if stays_turned and not keep:
        x, stays_turned = x.plain(graph), False
    axes = sorted(_TO_FIRST.index(axis) for axis in asked) if x.turned else sorted(asked)
    settings = {"keepdims": int(keep)}
    if node.op == "Sum":
        answer = graph.add("ReduceSum", [x.name, graph.integers(axes)], settings, node.name)
    else:
        answer = graph.add(_REDUCE[node.op], [x.name], {"axes": axes, **settings}, node.name)
    return Value(answer, stays_turned)


@_writes("Pad", "PadV2", "MirrorPad")
def _pad(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    x = _value(node, operands)
    amounts = _stored(node, operands, 1)
    rank = len(graph.shape(x.name))
    if amounts.shape != (rank, 2) or amounts.min(initial=0) < 0 or amounts.max(initial=0) > 4096:
        raise UnreadableModel(f"{node.op} {node.name!r} pads by {amounts.tolist()}")
    ordered = amounts[list(_TO_FIRST)] if x.turned else amounts
    mode = "constant"
    if node.op == "MirrorPad":
        mode = "reflect"
        if node.attributes.get("mode") != "REFLECT":
            raise UnsupportedModel(f"MirrorPad {node.name!r} repeats the edge")
    inputs = [x.name, graph.integers([int(v) for v in ordered.T.reshape(-1)])]
    if node.op == "PadV2":
        inputs.append(graph.weight(_stored(node, operands, 2).reshape(())))
    return Value(graph.add("Pad", inputs, {"mode": mode}, node.name), x.turned)


@_writes("Reshape")
def _reshape(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    x = _value(node, operands).plain(graph)
    shape = [int(side) for side in _stored(node, operands, 1).reshape(-1)]
    if len(shape) == 2 and shape[0] in (-1, 1):
        return Value(layers.flatten(graph, x.name))
    if shape and shape[0] == 1:
        shape[0] = -1 if -1 not in shape else 1
    return Value(graph.add("Reshape", [x.name, graph.integers(shape)], name=node.name))


@_writes("Flatten")
def _flatten(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    return Value(layers.flatten(graph, _value(node, operands).plain(graph).name))


@_writes("Squeeze")
def _squeeze(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    x = _value(node, operands).plain(graph)
    shape = graph.shape(x.name)
    asked = node.attributes.get("squeeze_dims") or [k for k, s in enumerate(shape) if s == 1]
    axes = [int(axis) % len(shape) for axis in asked]
    return Value(graph.add("Squeeze", [x.name, graph.integers(axes)], name=node.name))


@_writes("ExpandDims")
def _expand(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    x = _value(node, operands).plain(graph)
    axes = [int(v) for v in _stored(node, operands, 1).reshape(-1)]
    return Value(graph.add("Unsqueeze", [x.name, graph.integers(axes)], name=node.name))


@_writes("Transpose")
def _transpose(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    x = _value(node, operands).plain(graph)
    axes = [int(v) for v in _stored(node, operands, 1).reshape(-1)]
    return Value(graph.add("Transpose", [x.name], {"perm": axes}, node.name))


@_writes("ConcatV2")
def _concat(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    values = [_value(node, operands, k) for k in range(len(operands) - 1)]
    if not values:
        raise UnreadableModel(f"ConcatV2 {node.name!r} has no inputs")
    axis = int(_stored(node, operands, len(operands) - 1).reshape(-1)[0])
    if all(value.turned for value in values):
        names = [value.name for value in values]
        place = {"axis": _TO_FIRST.index(axis % 4)}
        return Value(graph.add("Concat", names, place, node.name), True)
    names = [value.plain(graph).name for value in values]
    return Value(graph.add("Concat", names, {"axis": axis}, node.name))
