"""One row of reals per picture, made of what a graph really answers.

Vendors squeeze the batch away (``[512]`` for one picture) or leave the embedding in the whole
numbers of its quantisation, which count from a zero point: their cosines are not those of the
embedding.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxfr.errors import UnsupportedModel
from onnxfr.models.card import Repair
from onnxfr.models.outputs import OutputChoice, width
from onnxfr.models.structure import constants_of

_ZERO_POINT = {
    "QuantizeLinear": 2,
    "QLinearConv": 7,
    "QLinearMatMul": 7,
    "QLinearAdd": 7,
    "QLinearMul": 7,
    "QGemm": 8,
    "QLinearAveragePool": 4,
    "QLinearGlobalAveragePool": 4,
    "QLinearLeakyRelu": 4,
    "QLinearSigmoid": 4,
    "QLinearConcat": 1,
}
"""Which input of an operator says what whole number stands for zero in its result."""

_SAME_NUMBERS = {"Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}


def make_rows(
    model: onnx.ModelProto, chosen: OutputChoice, batch: int
) -> tuple[OutputChoice, tuple[Repair, ...]]:
    """Let the embedding be rows of reals, in place, under the name it has.

    Args:
        model: a graph with the chosen output alone.
        chosen: the output and its true shape.
        batch: how many pictures that shape is for.
    """
    graph, name = model.graph, chosen.name
    repairs: list[Repair] = []
    zero = _zero_point(graph, name)
    if zero:
        reals, origin = f"{name}/onnxfr_reals", f"{name}/onnxfr_zero"
        codes = _set_aside(graph, name, "codes")
        graph.node.extend(
            [
                helper.make_node("Cast", [codes], [reals], to=TensorProto.FLOAT),
                helper.make_node("Cast", [zero], [origin], to=TensorProto.FLOAT),
                helper.make_node("Sub", [reals, origin], [name]),
            ]
        )
        graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
        detail = f"{name} is quantised: the zero point it counts from was taken off"
        repairs.append(Repair(name="zero-point", detail=detail))
    if chosen.shape[:1] != (batch,):
        count, shape = width(chosen.shape, batch), f"{name}/onnxfr_rows"
        graph.initializer.append(numpy_helper.from_array(np.asarray([-1, count]), shape))
        graph.node.append(
            helper.make_node("Reshape", [_set_aside(graph, name, "flat"), shape], [name])
        )
        detail = f"{name} has no axis for the batch ({list(chosen.shape)}) and got one"
        repairs.append(Repair(name="rows", detail=detail))
        chosen = replace(chosen, shape=(batch, count))
    return chosen, tuple(repairs)


def _set_aside(graph: onnx.GraphProto, name: str, part: str) -> str:
    """Give the result that is called ``name`` another name, so that a later node may have it."""
    other = f"{name}/onnxfr_{part}"
    for node in graph.node:
        for k, made in enumerate(node.output):
            if made == name:
                node.output[k] = other
    return other


def _zero_point(graph: onnx.GraphProto, name: str) -> str:
    """Return the name of the number that stands for zero in a quantised value; empty if none."""
    makers = {made: node for node in graph.node for made in node.output}
    while name in makers and makers[name].op_type in _SAME_NUMBERS:
        name = makers[name].input[0]
    node = makers.get(name)
    place = _ZERO_POINT.get(node.op_type) if node is not None else None
    if node is None or place is None or place >= len(node.input):
        return ""
    zero = str(node.input[place])
    stored = constants_of(graph).get(zero)
    if stored is not None and int(np.prod(stored.dims, dtype=np.int64)) != 1:
        raise UnsupportedModel(
            f"the output {name} is quantised with a scale for each of its entries; name a tensor "
            "before its quantisation with --output"
        )
    return zero
