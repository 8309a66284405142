"""OpenVINO's arithmetic as ONNX nodes: opsets 1 to 15, as far as face networks use them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from onnxfr.errors import UnreadableModel, UnsupportedModel
from onnxfr.exporters import _layers as layers
from onnxfr.exporters._graph_writer import GraphWriter
from onnxfr.exporters._openvino_ir import Layer
from onnxfr.exporters._operands import Operand, Operands, integers, named, stored

Writer = Callable[[GraphWriter, Layer, Operands], Operand | Sequence[Operand]]
OPERATORS: dict[str, Writer] = {}


def writes(*names: str) -> Callable[[Writer], Writer]:
    """Return a decorator that files a function under OpenVINO's names of an operator."""

    def decorate(function: Writer) -> Writer:
        OPERATORS.update(dict.fromkeys(names, function))
        return function

    return decorate


def _pair(values: Sequence[int], layer: Layer) -> layers.Pair:
    if len(values) != 2:
        raise UnsupportedModel(f"{layer}: {len(values)} axes of pixels; pictures have two")
    return values[0], values[1]


def _pads(
    layer: Layer,
    sides: Sequence[int],
    kernel: layers.Pair,
    stride: layers.Pair,
    dilation: layers.Pair,
) -> layers.Pads:
    mode = layer.text("auto_pad", "explicit").lower()
    if mode in ("explicit", "notset"):
        begin = _pair(layer.numbers("pads_begin", (0, 0)), layer)
        return (*begin, *_pair(layer.numbers("pads_end", (0, 0)), layer))
    if mode == "valid":
        return 0, 0, 0, 0
    if mode not in ("same_upper", "same_lower"):
        raise UnsupportedModel(f"{layer}: pads by {mode!r}")
    top, left, bottom, right = layers.same_pads((sides[1], sides[2]), kernel, stride, dilation)
    return (top, left, bottom, right) if mode == "same_upper" else (bottom, right, top, left)


@writes("Convolution", "GroupConvolution")
def _convolution(graph: GraphWriter, layer: Layer, operands: Operands) -> Operand:
    weight = stored(operands, 1, str(layer))
    group = 1
    if layer.kind == "GroupConvolution":
        if weight.ndim != 5:
            raise UnsupportedModel(f"{layer}: a weight of shape {weight.shape}")
        group = weight.shape[0]
        weight = weight.reshape(-1, *weight.shape[2:])
    if weight.ndim != 4:
        raise UnsupportedModel(f"{layer}: a weight of shape {weight.shape}")
    x = named(graph, operands[0])
    kernel = (weight.shape[2], weight.shape[3])
    stride = _pair(layer.numbers("strides", (1, 1)), layer)
    dilation = _pair(layer.numbers("dilations", (1, 1)), layer)
    pads = _pads(layer, graph.sides(x), kernel, stride, dilation)
    return layers.conv2d(
        graph, x, weight, None,
        stride=stride, pads=pads, dilation=dilation, group=group, name=layer.name,
    )  # fmt: skip


@writes("MatMul")
def _matmul(graph: GraphWriter, layer: Layer, operands: Operands) -> Operand:
    sides = []
    for operand, key in zip(operands, ("transpose_a", "transpose_b"), strict=True):
        if not layer.flag(key):
            sides.append(named(graph, operand))
        elif isinstance(operand, str):
            rank = len(graph.shape(operand))
            order = (*range(rank - 2), rank - 1, rank - 2)
            sides.append(graph.add("Transpose", [operand], {"perm": order}))
        else:
            sides.append(graph.weight(operand.swapaxes(-1, -2) if operand.ndim > 1 else operand))
    return graph.add("MatMul", sides, name=layer.name)


_BINARY = {
    "Add": "Add", "Subtract": "Sub", "Multiply": "Mul", "Divide": "Div", "Maximum": "Max",
    "Minimum": "Min", "Power": "Pow", "Equal": "Equal",
    "Greater": "Greater", "GreaterEqual": "GreaterOrEqual", "Less": "Less",
    "LessEqual": "LessOrEqual", "LogicalAnd": "And", "LogicalOr": "Or",
}  # fmt: skip


@writes(*_BINARY)
def _binary(graph: GraphWriter, layer: Layer, operands: Operands) -> Operand:
    return graph.add(_BINARY[layer.kind], _both(graph, layer, operands), name=layer.name)


@writes("Mod", "FloorMod")
def _remainder(graph: GraphWriter, layer: Layer, operands: Operands) -> Operand:
    """Write a remainder: Mod has the dividend's sign, FloorMod the divisor's, of reals too."""
    x, divisor = _both(graph, layer, operands)
    rest = graph.add("Mod", [x, divisor], {"fmod": 1}, layer.name)
    if layer.kind == "Mod":
        return rest
    # ONNX has the divisor's sign for whole numbers only
    return graph.add("Mod", [graph.add("Add", [rest, divisor]), divisor], {"fmod": 1}, layer.name)


def _both(graph: GraphWriter, layer: Layer, operands: Operands) -> list[str]:
    if len(operands) != 2:
        raise UnreadableModel(f"{layer}: expected two inputs, got {len(operands)}")
    if layer.text("auto_broadcast", "numpy").lower() not in ("numpy", "none"):
        raise UnsupportedModel(f"{layer}: broadcasts by {layer.text('auto_broadcast')!r}")
    return [named(graph, operand) for operand in operands]


@writes("SquaredDifference")
def _squared_difference(graph: GraphWriter, layer: Layer, operands: Operands) -> Operand:
    difference = graph.add("Sub", _both(graph, layer, operands))
    return graph.add("Mul", [difference, difference], name=layer.name)


_UNARY = {
    "ReLU": "Relu", "Sigmoid": "Sigmoid", "Tanh": "Tanh", "Exp": "Exp", "Log": "Log",
    "Sqrt": "Sqrt", "Abs": "Abs", "Negative": "Neg", "Erf": "Erf", "SoftPlus": "Softplus",
    "Floor": "Floor", "Ceiling": "Ceil", "HSwish": "HardSwish", "LogicalNot": "Not",
    "Sign": "Sign", "Sin": "Sin", "Cos": "Cos",
}  # fmt: skip


@writes(*_UNARY)
def _unary(graph: GraphWriter, layer: Layer, operands: Operands) -> Operand:
    return graph.add(_UNARY[layer.kind], [named(graph, operands[0])], name=layer.name)


@writes("Elu")
def _elu(graph: GraphWriter, layer: Layer, operands: Operands) -> Operand:
    alpha = {"alpha": layer.number_of("alpha")}
    return graph.add("Elu", [named(graph, operands[0])], alpha, layer.name)


@writes("HSigmoid")
def _hsigmoid(graph: GraphWriter, layer: Layer, operands: Operands) -> Operand:
    slope = {"alpha": 1 / 6, "beta": 0.5}
    return graph.add("HardSigmoid", [named(graph, operands[0])], slope, layer.name)


@writes("HardSigmoid")
def _hard_sigmoid(graph: GraphWriter, layer: Layer, operands: Operands) -> Operand:
    slope, offset = (float(stored(operands, k, str(layer)).reshape(-1)[0]) for k in (1, 2))
    numbers = {"alpha": slope, "beta": offset}
    return graph.add("HardSigmoid", [named(graph, operands[0])], numbers, layer.name)


@writes("Mish")
def _mish(graph: GraphWriter, layer: Layer, operands: Operands) -> Operand:
    x = named(graph, operands[0])
    gate = graph.add("Tanh", [graph.add("Softplus", [x])])
    return graph.add("Mul", [x, gate], name=layer.name)


@writes("Swish")
def _swish(graph: GraphWriter, layer: Layer, operands: Operands) -> Operand:
    x = named(graph, operands[0])
    inner = x if len(operands) == 1 else graph.add("Mul", [x, named(graph, operands[1])])
    return graph.add("Mul", [x, graph.add("Sigmoid", [inner])], name=layer.name)


@writes("Gelu")
def _gelu(graph: GraphWriter, layer: Layer, operands: Operands) -> Operand:
    tanh = layer.text("approximation_mode", "ERF").upper() == "TANH"
    return layers.gelu(graph, named(graph, operands[0]), tanh=tanh, name=layer.name)


@writes("Clamp")
def _clamp(graph: GraphWriter, layer: Layer, operands: Operands) -> Operand:
    ends = [graph.number(layer.number_of(key)) for key in ("min", "max")]
    return graph.add("Clip", [named(graph, operands[0]), *ends], name=layer.name)


@writes("PReLU")
def _prelu(graph: GraphWriter, layer: Layer, operands: Operands) -> Operand:
    x, slope = named(graph, operands[0]), stored(operands, 1, str(layer))
    if slope.ndim <= 1:
        return layers.prelu(graph, x, slope, layer.name)
    return graph.add("PRelu", [x, graph.weight(slope)], name=layer.name)


@writes("AvgPool", "MaxPool")
def _pool(graph: GraphWriter, layer: Layer, operands: Operands) -> Operand:
    x = named(graph, operands[0])
    kernel = _pair(layer.numbers("kernel"), layer)
    stride = _pair(layer.numbers("strides", (1, 1)), layer)
    if set(layer.numbers("dilations", (1, 1))) != {1}:
        raise UnsupportedModel(f"{layer}: pools with gaps")
    kind: layers.PoolKind = "max" if layer.kind == "MaxPool" else "average"
    return layers.pool(
        graph,
        x,
        kind,
        kernel,
        stride,
        _pads(layer, graph.sides(x), kernel, stride, (1, 1)),
        rounds_up=layer.text("rounding_type", "floor").lower().startswith("ceil"),
        counts_pads=not layer.flag("exclude-pad"),
        name=layer.name,
    )


_REDUCE = {
    "ReduceMean": "ReduceMean", "ReduceMax": "ReduceMax", "ReduceMin": "ReduceMin",
    "ReduceProd": "ReduceProd", "ReduceL1": "ReduceL1", "ReduceL2": "ReduceL2",
}  # fmt: skip


@writes(*_REDUCE, "ReduceSum")
def _reduce(graph: GraphWriter, layer: Layer, operands: Operands) -> Operand:
    x, axes = named(graph, operands[0]), integers(operands, 1, str(layer))
    keep = int(layer.flag("keep_dims"))
    if layer.kind == "ReduceSum":
        return graph.add("ReduceSum", [x, graph.integers(axes)], {"keepdims": keep}, layer.name)
    return graph.add(_REDUCE[layer.kind], [x], {"axes": axes, "keepdims": keep}, layer.name)


@writes("SoftMax", "Softmax")
def _softmax(graph: GraphWriter, layer: Layer, operands: Operands) -> Operand:
    axis = {"axis": int(layer.number_of("axis", 1))}
    return graph.add("Softmax", [named(graph, operands[0])], axis, layer.name)


@writes("NormalizeL2")
def _normalize_l2(graph: GraphWriter, layer: Layer, operands: Operands) -> Operand:
    x, axes = named(graph, operands[0]), integers(operands, 1, str(layer))
    eps, mode = layer.number_of("eps"), layer.text("eps_mode", "add").lower()
    if mode == "add":
        return layers.l2_normalise(graph, x, eps, axes)
    squares = graph.add("Mul", [x, x])
    total = graph.add("ReduceSum", [squares, graph.integers(axes)], {"keepdims": 1})
    floor = graph.add("Max", [total, graph.number(eps)])
    return graph.add("Div", [x, graph.add("Sqrt", [floor])], name=layer.name)


@writes("MVN")
def _mvn(graph: GraphWriter, layer: Layer, operands: Operands) -> Operand:
    x = named(graph, operands[0])
    if len(operands) > 1:
        axes = integers(operands, 1, str(layer))
    else:
        first = 1 if layer.flag("across_channels") else 2
        axes = tuple(range(first, len(graph.shape(x))))
    mean = graph.add("ReduceMean", [x], {"axes": axes, "keepdims": 1})
    centred = graph.add("Sub", [x, mean], name=layer.name)
    if not layer.flag("normalize_variance", True):
        return centred
    squares = graph.add("Mul", [centred, centred])
    spread = graph.add("ReduceMean", [squares], {"axes": axes, "keepdims": 1})
    eps = graph.number(layer.number_of("eps"))
    if layer.text("eps_mode", "inside_sqrt").lower() == "inside_sqrt":
        below = graph.add("Sqrt", [graph.add("Add", [spread, eps])])
    else:
        below = graph.add("Add", [graph.add("Sqrt", [spread]), eps])
    return graph.add("Div", [centred, below], name=layer.name)


@writes("BatchNormInference")
def _batch_norm(graph: GraphWriter, layer: Layer, operands: Operands) -> Operand:
    order = (2, 0, 1, 3, 4) if layer.version == "opset1" else (0, 1, 2, 3, 4)
    x, *rest = (operands[k] for k in order)
    parts = ("scale", "bias", "mean", "variance")
    values = {part: stored(rest, k, str(layer)) for k, part in enumerate(parts)}
    eps = layer.number_of("epsilon")
    return layers.batch_norm(graph, named(graph, x), **values, eps=eps, name=layer.name)


@writes("ScaledDotProductAttention")
def _attention(graph: GraphWriter, layer: Layer, operands: Operands) -> Operand:
    if len(operands) not in (3, 5) or layer.flag("causal"):
        raise UnsupportedModel(f"{layer}: masked attention")
    query, key, value = (named(graph, operand) for operand in operands[:3])
    rank, width = len(graph.shape(query)), graph.shape(query)[-1]
    if len(operands) == 5:
        if np.any(stored(operands, 3, str(layer))):
            raise UnsupportedModel(f"{layer}: masked attention")
        scale = float(stored(operands, 4, str(layer)).reshape(-1)[0])
    elif width is None:
        raise UnsupportedModel(f"{layer}: heads of unknown width")
    else:
        scale = width**-0.5
    turned = graph.add("Transpose", [key], {"perm": (*range(rank - 2), rank - 1, rank - 2)})
    scores = graph.add("MatMul", [query, turned])
    scaled = graph.add("Mul", [scores, graph.number(scale)])
    weights = graph.add("Softmax", [scaled], {"axis": -1})
    return graph.add("MatMul", [weights, value], name=layer.name)
