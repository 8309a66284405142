"""PaddlePaddle's functions of one value, as ONNX nodes."""

from __future__ import annotations

from onnxfr.errors import UnsupportedModel
from onnxfr.exporters import _layers as layers
from onnxfr.exporters._graph_writer import GraphWriter
from onnxfr.exporters._operands import Operand, Operands, named
from onnxfr.exporters._paddle_operators import setting, writes
from onnxfr.exporters._paddle_program import Step

_UNARY = {
    "relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "exp": "Exp", "log": "Log",
    "sqrt": "Sqrt", "abs": "Abs", "erf": "Erf", "softplus": "Softplus", "floor": "Floor",
}  # fmt: skip


@writes(*_UNARY)
def _unary(graph: GraphWriter, step: Step, operands: Operands) -> Operand:
    return graph.add(_UNARY[step.kind], [named(graph, operands[0])])


@writes("relu6")
def _relu6(graph: GraphWriter, step: Step, operands: Operands) -> Operand:
    return graph.add("Clip", [named(graph, operands[0]), graph.number(0), graph.number(6)])


@writes("hardswish")
def _hardswish(graph: GraphWriter, step: Step, operands: Operands) -> Operand:
    numbers = [float(setting(step, key, d)) for key, d in (("threshold", 6), ("offset", 3))]
    if numbers != [6, 3] or float(setting(step, "scale", 6)) != 6:
        raise UnsupportedModel(f"{step}: a hard swish with other numbers than 6, 3, 6")
    return graph.add("HardSwish", [named(graph, operands[0])])


@writes("hardsigmoid")
def _hardsigmoid(graph: GraphWriter, step: Step, operands: Operands) -> Operand:
    slope = {
        "alpha": float(setting(step, "slope", 0.2)),
        "beta": float(setting(step, "offset", 0.5)),
    }
    return graph.add("HardSigmoid", [named(graph, operands[0])], slope)


@writes("swish", "silu")
def _swish(graph: GraphWriter, step: Step, operands: Operands) -> Operand:
    x = named(graph, operands[0])
    factor = float(setting(step, "beta", 1.0))
    inner = x if factor == 1 else graph.add("Mul", [x, graph.number(factor)])
    return graph.add("Mul", [x, graph.add("Sigmoid", [inner])])


@writes("gelu")
def _gelu(graph: GraphWriter, step: Step, operands: Operands) -> Operand:
    tanh = bool(setting(step, "approximate", False))
    return layers.gelu(graph, named(graph, operands[0]), tanh=tanh)


@writes("leaky_relu", "elu")
def _sloped(graph: GraphWriter, step: Step, operands: Operands) -> Operand:
    alpha = setting(step, "alpha", setting(step, "negative_slope", 0.02))
    kind = "LeakyRelu" if step.kind == "leaky_relu" else "Elu"
    return graph.add(kind, [named(graph, operands[0])], {"alpha": float(alpha)})


@writes("rsqrt")
def _rsqrt(graph: GraphWriter, step: Step, operands: Operands) -> Operand:
    return graph.add("Reciprocal", [graph.add("Sqrt", [named(graph, operands[0])])])


@writes("square")
def _square(graph: GraphWriter, step: Step, operands: Operands) -> Operand:
    x = named(graph, operands[0])
    return graph.add("Mul", [x, x])


@writes("pow")
def _pow(graph: GraphWriter, step: Step, operands: Operands) -> Operand:
    power = float(setting(step, "y", setting(step, "factor", 1.0)))
    return graph.add("Pow", [named(graph, operands[0]), graph.number(power)])


@writes("softmax")
def _softmax(graph: GraphWriter, step: Step, operands: Operands) -> Operand:
    return graph.add(
        "Softmax", [named(graph, operands[0])], {"axis": int(setting(step, "axis", -1))}
    )
