"""TFLite's own forms of convolution and dense layers, and its quantised values, as ONNX nodes."""

from __future__ import annotations

import numpy as np

from onnxfr.errors import UnreadableModel, UnsupportedModel
from onnxfr.exporters import _layers as layers
from onnxfr.exporters._graph_writer import GraphWriter, Packed
from onnxfr.exporters._tf_values import (
    TO_FIRST,
    Node,
    Operand,
    Operands,
    Stored,
    Value,
    computed,
    kept,
    reals,
    writes,
)


def _weight(node: Node, operands: Operands, place: int) -> Stored:
    """Return stored numbers; packed ones stay so only where the values they meet are quantised."""
    numbers = kept(node, operands, place)
    return numbers if node.flag("quantised") else reals(numbers)


def _bias(node: Node, operands: Operands) -> Stored | None:
    if len(operands) < 3:
        return None
    bias = _weight(node, operands, 2)
    if isinstance(bias, Packed):
        return Packed(bias.numbers.reshape(-1), bias.scale, bias.zero)
    return bias.reshape(-1)


@writes("CONV_2D", "DEPTHWISE_CONV_2D")
def _convolution(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    x = computed(node, operands).first(graph)
    found = _weight(node, operands, 1)
    numbers = found.numbers if isinstance(found, Packed) else found
    if numbers.ndim != 4:
        raise UnreadableModel(f"the kernel of {node.name!r} has the shape {numbers.shape}")
    channels = graph.sides(x)[0]
    if node.op == "CONV_2D":
        turned = numbers.transpose(0, 3, 1, 2)
        group = max(1, channels // max(1, turned.shape[1]))
    else:
        turned = numbers[0].transpose(2, 0, 1)[:, None]
        group = channels
    weight: Stored = turned
    if isinstance(found, Packed):
        weight = Packed(turned, found.scale, found.zero, 0)
    kernel = (turned.shape[2], turned.shape[3])
    stride, dilation = node.attributes["stride"], node.attributes["dilation"]
    pads: layers.Pads = (0, 0, 0, 0)
    if node.attributes["padding"] == "SAME":
        sides = graph.sides(x)
        pads = layers.same_pads((sides[1], sides[2]), kernel, stride, dilation)
    answer = layers.conv2d(
        graph,
        x,
        weight,
        _bias(node, operands),
        stride=stride,
        pads=pads,
        dilation=dilation,
        group=group,
        name=node.name,
    )
    return Value(answer, True)


@writes("FULLY_CONNECTED")
def _dense(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    x = computed(node, operands).plain(graph)
    weight = _weight(node, operands, 1)
    if len(graph.shape(x.name)) == 3:
        raise UnsupportedModel(f"{node.name!r} is a dense layer over rows of a sequence")
    return Value(layers.dense(graph, x.name, weight, _bias(node, operands), node.name))


@writes("L2_NORMALIZATION")
def _l2(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    x = computed(node, operands)
    axis = TO_FIRST.index(3) if x.turned else len(graph.shape(x.name)) - 1
    return Value(layers.l2_normalise(graph, x.name, 1e-12, (axis,)), x.turned)


@writes("QUANTIZE")
def _quantise(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    """Round to the grid of a quantised tensor and go on with the reals it stands for."""
    x = computed(node, operands)
    dtype = np.dtype(node.attributes["dtype"])
    scale = graph.weight(np.asarray(node.attributes["scale"], np.float32), "scale")
    zero = graph.weight(np.asarray(node.attributes["zero"]).astype(dtype), "zero")
    whole = graph.add("QuantizeLinear", [x.name, scale, zero], name=f"{node.name}/whole")
    return Value(graph.add("DequantizeLinear", [whole, scale, zero], name=node.name), x.turned)
