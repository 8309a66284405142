"""TensorFlow's arithmetic as ONNX nodes; four-axis values are kept with channels first."""

from __future__ import annotations

import numpy as np

from onnxfr.errors import UnreadableModel, UnsupportedModel
from onnxfr.exporters import _layers as layers
from onnxfr.exporters._graph_writer import GraphWriter
from onnxfr.exporters._tf_values import (
    TO_FIRST,
    Array,
    Node,
    Operand,
    Operands,
    Value,
    computed,
    reals,
    stored,
    writes,
)


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


@writes(
    "Conv2D", "_FusedConv2D", "FusedConv2D",
    "DepthwiseConv2dNative", "DepthwiseConv2D", "FusedDepthwiseConv2dNative",
)  # fmt: skip
def _convolution(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    if node.attributes.get("data_format", "NHWC") != "NHWC":
        raise UnsupportedModel(f"{node.op} {node.name!r} is not NHWC")
    x = computed(node, operands).first(graph)
    kernel = stored(node, operands, 1)
    if kernel.ndim != 4:
        raise UnreadableModel(f"the kernel of {node.name!r} has the shape {kernel.shape}")
    height, width, channels, multiple = kernel.shape
    group = 1
    if "Depthwise" in node.op:
        group = channels
        weight = kernel.transpose(2, 3, 0, 1).reshape(channels * multiple, 1, height, width)
    else:
        weight = kernel.transpose(3, 2, 0, 1)
        group = max(1, graph.sides(x)[0] // max(1, channels))
    dilation = node.sides("dilations")
    bias, left = _fused_bias(node, operands[2:])
    answer = layers.conv2d(
        graph,
        x,
        weight,
        bias,
        stride=node.sides("strides"),
        pads=_pads(node, graph.sides(x), (height, width), dilation),
        dilation=dilation,
        group=group,
        name=node.name,
    )
    return _fused(graph, node, Value(answer, True), left)


def _fused_bias(node: Node, extra: Operands) -> tuple[Array | None, list[Operand]]:
    """Return the bias that the converter merged into an operator, and what other inputs it has."""
    left = list(extra)
    steps = node.attributes.get("fused_ops") or []
    return (_next(node, left).reshape(-1) if steps[:1] == ["BiasAdd"] else None), left


def _fused(graph: GraphWriter, node: Node, x: Value, left: list[Operand]) -> Value:
    """Add the activation that the converter merged into an operator."""
    steps = list(node.attributes.get("fused_ops") or [])
    for step in steps[1:] if steps[:1] == ["BiasAdd"] else steps:
        if step == "Prelu":
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
    return reals(left.pop(0))  # type: ignore[arg-type]


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


@writes(*_BINARY)
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
    operand = reals(operand)
    if not turned or operand.ndim == 0:
        return graph.weight(operand)
    if operand.ndim > 4:
        raise UnsupportedModel(f"a constant with {operand.ndim} axes is mixed with a picture")
    full = operand.reshape((1,) * (4 - operand.ndim) + operand.shape)
    return graph.weight(full.transpose(TO_FIRST))


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
    "Selu": "Selu",
    "Erf": "Erf",
    "Reciprocal": "Reciprocal",
    "HardSwish": "HardSwish",
}


@writes(*_UNARY)
def _unary(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    x = computed(node, operands)
    return Value(graph.add(_UNARY[node.op], [x.name], name=node.name), x.turned)


@writes("Square")
def _square(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    x = computed(node, operands)
    return Value(graph.add("Mul", [x.name, x.name], name=node.name), x.turned)


@writes("Rsqrt")
def _rsqrt(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    x = computed(node, operands)
    root = graph.add("Sqrt", [x.name])
    return Value(graph.add("Reciprocal", [root], name=node.name), x.turned)


@writes("Relu6")
def _relu6(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    return _clip6(graph, computed(node, operands))


@writes("LeakyRelu")
def _leaky(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    x = computed(node, operands)
    alpha = node.attributes.get("alpha")
    slope = {"alpha": 0.2 if alpha is None else float(alpha)}
    return Value(graph.add("LeakyRelu", [x.name], slope, node.name), x.turned)


@writes("Prelu")
def _prelu(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    x = computed(node, operands)
    slope = _broadcast(graph, stored(node, operands, 1), x.turned)
    return Value(graph.add("PRelu", [x.name, slope], name=node.name), x.turned)


@writes("Softmax")
def _softmax(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    x = computed(node, operands).plain(graph)
    return Value(graph.add("Softmax", [x.name], {"axis": -1}, node.name))


@writes("Identity", "StopGradient", "CheckNumerics", "Snapshot", "NoOp", "Cast")
def _same(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    if not operands:
        raise UnreadableModel(f"{node.op} {node.name!r} has no input")
    return operands[0]


@writes("IdentityN")
def _all_the_same(graph: GraphWriter, node: Node, operands: Operands) -> tuple[Operand, ...]:
    return tuple(operands)


@writes("MatMul", "_FusedMatMul")
def _matmul(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    x = computed(node, operands).plain(graph)
    if node.flag("transpose_a"):
        raise UnsupportedModel(f"{node.op} {node.name!r} transposes pictures")
    weight = stored(node, operands, 1)
    turned = weight if node.flag("transpose_b") else weight.T
    bias, left = _fused_bias(node, operands[2:])
    answer = Value(layers.dense(graph, x.name, turned, bias, node.name))
    return _fused(graph, node, answer, left)


@writes("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
def _batch_norm(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    x = computed(node, operands).first(graph)
    scale, bias, mean, variance = (stored(node, operands, k) for k in range(1, 5))
    parts = {"scale": scale, "bias": bias, "mean": mean, "variance": variance}
    eps = node.attributes.get("epsilon")
    chosen = 1e-4 if eps is None else float(eps)
    return Value(layers.batch_norm(graph, x, **parts, eps=chosen, name=node.name), True)


@writes("MaxPool", "AvgPool")
def _pool(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    x = computed(node, operands).first(graph)
    kernel = node.sides("ksize")
    kind: layers.PoolKind = "max" if node.op == "MaxPool" else "average"
    pads = _pads(node, graph.sides(x), kernel, (1, 1))
    stride = node.sides("strides")
    answer = layers.pool(graph, x, kind, kernel, stride, pads, counts_pads=False, name=node.name)
    return Value(answer, True)
