"""onnxruntime's own quantised layers: back to reals, the layer, quantised again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from onnxfr.models.graph.node import Node
from onnxfr.models.graph.ops.pooling import averaged, mean_over_space
from onnxfr.models.graph.ops.quantization import dequantized, integer_range, quantized
from onnxfr.models.graph.rules import MICROSOFT, operator
from onnxfr.models.graph.values import Value


def _real(node: Node, index: int) -> Value:
    """Return the quantised input at ``index``, followed by its scale and zero point, as reals."""
    return node.emit(dequantized, node[index], node[index + 1], node.get(index + 2))


def _quantized(node: Node, value: Value, scale: int) -> Value:
    zero = node.get(scale + 1)
    elem_type, low, high = integer_range(node, zero)
    result = node.emit(quantized, value, node[scale], zero, low, high)
    result.elem_type = elem_type
    return result


def _layer(node: Node, function: Callable[..., Tensor], *args: Any) -> Value:
    return _quantized(node, node.emit(function, _real(node, 0), *args), 3)


@operator("QLinearAdd", domain=MICROSOFT)
def qlinear_add(node: Node) -> Value:
    """Sum of two quantised values."""
    return _quantized(node, node.emit(torch.add, _real(node, 0), _real(node, 3)), 6)


@operator("QLinearMul", domain=MICROSOFT)
def qlinear_mul(node: Node) -> Value:
    """Product of two quantised values."""
    return _quantized(node, node.emit(torch.mul, _real(node, 0), _real(node, 3)), 6)


@operator("QLinearLeakyRelu", domain=MICROSOFT)
def qlinear_leaky_relu(node: Node) -> Value:
    """Leaky rectifier of a quantised value."""
    return _layer(node, F.leaky_relu, node.real("alpha", 0.01))


@operator("QLinearSigmoid", domain=MICROSOFT)
def qlinear_sigmoid(node: Node) -> Value:
    """Logistic function of a quantised value."""
    return _layer(node, torch.sigmoid)


@operator("QLinearSoftmax", domain=MICROSOFT)
def qlinear_softmax(node: Node) -> Value:
    """Softmax of a quantised value."""
    if node.integer("opset", 13) < 13:
        raise node.unsupported("softmax over several axes")
    return _layer(node, torch.softmax, node.integer("axis", -1))


@operator("QLinearGlobalAveragePool", domain=MICROSOFT)
def qlinear_global_average_pool(node: Node) -> Value:
    """Mean over space of a quantised value."""
    if node.integer("channels_last", 0):
        raise node.unsupported("channels_last")
    return _layer(node, mean_over_space)


@operator("QLinearAveragePool", domain=MICROSOFT)
def qlinear_average_pool(node: Node) -> Value:
    """Mean of each window of a quantised value."""
    if node.integer("channels_last", 0):
        raise node.unsupported("channels_last")
    return _quantized(node, averaged(node, _real(node, 0)), 3)


@operator("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(node: Node) -> Value:
    """Join quantised values of different scales."""
    parts = tuple(_real(node, index) for index in range(2, len(node.inputs), 3))
    return _quantized(node, node.emit(torch.cat, parts, node.integer("axis", 0)), 0)
