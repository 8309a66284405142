"""PaddlePaddle's arithmetic as ONNX nodes, under the names of version 3.

What older versions keep as a setting is an input since version 3; both are looked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onnxfr.errors import UnreadableModel, UnsupportedModel
from onnxfr.exporters import _layers as layers
from onnxfr.exporters._graph_writer import GraphWriter
from onnxfr.exporters._operands import Operand, Operands, named, stored
from onnxfr.exporters._paddle_program import Step

Writer = Callable[[GraphWriter, Step, Operands], Operand | Sequence[Operand]]
OPERATORS: dict[str, Writer] = {}


def writes(*names: str) -> Callable[[Writer], Writer]:
    """Return a decorator that files a function under Paddle's names of an operator."""

    def decorate(function: Writer) -> Writer:
        OPERATORS.update(dict.fromkeys(names, function))
        return function

    return decorate


def setting(step: Step, key: str, default: Any = None) -> Any:
    """Return a setting; without a default it must be there."""
    value = step.settings.get(key)
    if value is None and default is None:
        raise UnreadableModel(f"{step}: the setting {key!r} is missing")
    return default if value is None else value


def given(step: Step, operands: Operands, key: str, place: int) -> list[Any]:
    """Return numbers that are an input since version 3 and were a setting before."""
    if len(operands) > place:
        return list(stored(operands, place, str(step)).reshape(-1).tolist())
    value = setting(step, key)
    return list(value) if isinstance(value, (list, tuple)) else [value]


def pair(step: Step, values: Sequence[int]) -> layers.Pair:
    """Return height and width."""
    if len(values) not in (1, 2):
        raise UnsupportedModel(f"{step}: expected two sides, got {list(values)}")
    return int(values[0]), int(values[-1])


def channels_first(step: Step) -> None:
    """Refuse the other order of axes."""
    if setting(step, "data_format", "NCHW") not in ("NCHW", "AnyLayout"):
        raise UnsupportedModel(f"{step}: pictures in the order {setting(step, 'data_format')}")


def _pads(
    step: Step, sides: Sequence[int], kernel: layers.Pair, stride: layers.Pair, gaps: layers.Pair
) -> layers.Pads:
    mode = setting(step, "padding_algorithm", "EXPLICIT")
    if mode == "VALID":
        return 0, 0, 0, 0
    if mode == "SAME":
        return layers.same_pads((sides[1], sides[2]), kernel, stride, gaps)
    amounts = [int(value) for value in setting(step, "paddings", [0, 0])]
    if len(amounts) == 2:
        return amounts[0], amounts[1], amounts[0], amounts[1]
    if len(amounts) != 4 or mode != "EXPLICIT":
        raise UnsupportedModel(f"{step}: pads by {mode!r} {amounts}")
    top, bottom, left, right = amounts
    return top, left, bottom, right


@writes("conv2d")
def _convolution(graph: GraphWriter, step: Step, operands: Operands) -> Operand:
    channels_first(step)
    x, weight = named(graph, operands[0]), stored(operands, 1, str(step))
    if weight.ndim != 4:
        raise UnreadableModel(f"{step}: a weight of shape {weight.shape}")
    stride, gaps = (pair(step, setting(step, key, [1, 1])) for key in ("strides", "dilations"))
    kernel = (weight.shape[2], weight.shape[3])
    return layers.conv2d(
        graph,
        x,
        weight,
        None,
        stride=stride,
        pads=_pads(step, graph.sides(x), kernel, stride, gaps),
        dilation=gaps,
        group=int(setting(step, "groups", 1)),
    )


@writes("pool2d")
def _pool(graph: GraphWriter, step: Step, operands: Operands) -> Operand:
    channels_first(step)
    x = named(graph, operands[0])
    kind: layers.PoolKind = "max" if setting(step, "pooling_type") == "max" else "average"
    kernel = pair(step, given(step, operands, "kernel_size", 1))
    adaptive = setting(step, "adaptive", False)
    if setting(step, "global_pooling", False) or (adaptive and kernel == (1, 1)):
        return layers.global_pool(graph, x, kind)
    if adaptive:
        height, width = graph.sides(x)[1:]
        if kernel[0] < 1 or kernel[1] < 1 or height % kernel[0] or width % kernel[1]:
            raise UnsupportedModel(f"{step}: pools {height}x{width} to {kernel[0]}x{kernel[1]}")
        kernel = (height // kernel[0], width // kernel[1])
        return layers.pool(graph, x, kind, kernel, kernel)
    stride = pair(step, setting(step, "strides", [1, 1]))
    return layers.pool(
        graph,
        x,
        kind,
        kernel,
        stride,
        _pads(step, graph.sides(x), kernel, stride, (1, 1)),
        rounds_up=bool(setting(step, "ceil_mode", False)),
        counts_pads=not setting(step, "exclusive", True),
    )


@writes("batch_norm")
def _batch_norm(graph: GraphWriter, step: Step, operands: Operands) -> Operand:
    channels_first(step)
    mean, variance, scale, bias = (stored(operands, k, str(step)) for k in (1, 2, 3, 4))
    return layers.batch_norm(
        graph,
        named(graph, operands[0]),
        scale=scale,
        bias=bias,
        mean=mean,
        variance=variance,
        eps=float(setting(step, "epsilon", 1e-5)),
    )


@writes("layer_norm")
def _layer_norm(graph: GraphWriter, step: Step, operands: Operands) -> Operand:
    x = named(graph, operands[0])
    first = int(setting(step, "begin_norm_axis", 1))
    sides = tuple(side or 0 for side in graph.shape(x)[first:])
    parts = [graph.weight(stored(operands, k, str(step)).reshape(sides)) for k in (1, 2)]
    eps = {"axis": first, "epsilon": float(setting(step, "epsilon", 1e-5))}
    return graph.add("LayerNormalization", [x, *parts], eps)


@writes("prelu")
def _prelu(graph: GraphWriter, step: Step, operands: Operands) -> Operand:
    channels_first(step)
    x, slope = named(graph, operands[0]), stored(operands, 1, str(step))
    if setting(step, "mode") == "element":
        return graph.add("PRelu", [x, graph.weight(slope)])
    return layers.prelu(graph, x, slope)


_BINARY = {
    "add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div", "maximum": "Max",
    "minimum": "Min", "elementwise_pow": "Pow",
}  # fmt: skip


@writes(*_BINARY)
def _binary(graph: GraphWriter, step: Step, operands: Operands) -> Operand:
    if len(operands) != 2:
        raise UnreadableModel(f"{step}: expected two inputs, got {len(operands)}")
    left, right = (named(graph, operand) for operand in operands)
    axis = int(setting(step, "axis", -1))
    missing = len(graph.shape(left)) - axis - len(graph.shape(right))
    if axis >= 0 and missing > 0:
        last = len(graph.shape(right))
        right = graph.add("Unsqueeze", [right, graph.integers(range(last, last + missing))])
    return graph.add(_BINARY[step.kind], [left, right])


@writes("clip")
def _clip(graph: GraphWriter, step: Step, operands: Operands) -> Operand:
    ends = [given(step, operands, key, k)[0] for k, key in ((1, "min"), (2, "max"))]
    return graph.add("Clip", [named(graph, operands[0]), *(graph.number(end) for end in ends)])


@writes("scale")
def _scale(graph: GraphWriter, step: Step, operands: Operands) -> Operand:
    x = named(graph, operands[0])
    factor = float(given(step, operands, "scale", 1)[0])
    bias = float(setting(step, "bias", 0.0))
    integral = not isinstance(operands[0], str) and operands[0].dtype.kind in "iu"

    def number(value: float) -> str:
        dtype = operands[0].dtype if integral else np.float32  # type: ignore[union-attr]
        return graph.weight(np.asarray(value, dtype=dtype))

    parts = [("Mul", factor, 1.0), ("Add", bias, 0.0)]
    for operator, value, nothing in (
        parts if setting(step, "bias_after_scale", True) else parts[::-1]
    ):
        x = x if value == nothing else graph.add(operator, [x, number(value)])
    return x


@writes("matmul", "matmul_rows")
def _matmul(graph: GraphWriter, step: Step, operands: Operands) -> Operand:
    if step.kind == "matmul_rows":
        return _rows(graph, step, operands)
    sides = []
    for operand, key, old in zip(
        operands, ("transpose_x", "transpose_y"), ("trans_x", "trans_y"), strict=True
    ):
        name = named(graph, operand)
        if setting(step, key, setting(step, old, False)):
            rank = len(graph.shape(name))
            name = graph.add("Transpose", [name], {"perm": (*range(rank - 2), rank - 1, rank - 2)})
        sides.append(name)
    return graph.add("MatMul", sides)


def _rows(graph: GraphWriter, step: Step, operands: Operands) -> str:
    if (
        int(setting(step, "x_num_col_dims", 1)) != 1
        or int(setting(step, "in_num_col_dims", 1)) != 1
    ):
        raise UnsupportedModel(f"{step}: multiplies more than rows")
    x = layers.flatten(graph, named(graph, operands[0]))
    return graph.add("MatMul", [x, named(graph, operands[1])])


@writes("fc")
def _fc(graph: GraphWriter, step: Step, operands: Operands) -> Operand:
    x = _rows(graph, step, operands)
    if len(operands) > 2:
        x = graph.add("Add", [x, named(graph, operands[2])])
    activation = setting(step, "activation_type", "")
    if activation not in ("", "relu"):
        raise UnsupportedModel(f"{step}: the activation {activation!r}")
    return graph.add("Relu", [x]) if activation else x


@writes("dropout")
def _dropout(graph: GraphWriter, step: Step, operands: Operands) -> Operand:
    mode = setting(step, "mode", setting(step, "dropout_implementation", "downgrade_in_infer"))
    x = named(graph, operands[0])
    if mode == "upscale_in_train":
        return x
    kept = 1 - float(
        setting(step, "dropout_prob", 0.5)
        if len(operands) < 2
        else given(step, operands, "p", len(operands) - 1)[0]
    )
    return graph.add("Mul", [x, graph.number(kept)])
