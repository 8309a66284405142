"""Convolutions, with padding as ONNX defines it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from onnxfr.models.graph.node import Node
from onnxfr.models.graph.ops.windows import Window, read_window
from onnxfr.models.graph.rules import MICROSOFT, operator
from onnxfr.models.graph.values import Product, Value, dimensions

CONVOLVE = {1: torch.conv1d, 2: torch.conv2d, 3: torch.conv3d}
_SPREAD = {1: torch.conv_transpose1d, 2: torch.conv_transpose2d, 3: torch.conv_transpose3d}


@dataclass(frozen=True)
class _Layer:
    """A convolution that can be written again with other weights."""

    node: Node
    x: Value
    window: Window
    groups: int

    def write(self, weight: Value, bias: Value | None) -> Value:
        node, window = self.node, self.window
        convolve = CONVOLVE[len(window.kernel)]
        common = (window.strides, window.torch_padding, window.dilations, self.groups)
        padded = self.x
        if window.uneven:
            padded = node.emit(F.pad, self.x, window.uneven)
        result = node.emit(convolve, padded, weight, bias, *common)
        if weight.constant is not None and (bias is None or bias.constant is not None):
            result.rescale = lambda scale, shift: self._rescaled(weight, bias, scale, shift)
        return result

    def _rescaled(self, weight: Value, bias: Value | None, scale: Tensor, shift: Tensor) -> Value:
        assert weight.constant is not None
        new_weight, new_bias = rescaled(
            weight.constant, None if bias is None else bias.constant, scale, shift
        )
        return self.write(Value.constant_of(new_weight), Value.constant_of(new_bias))


def rescaled(
    weight: Tensor, bias: Tensor | None, scale: Tensor, shift: Tensor
) -> tuple[Tensor, Tensor]:
    """Return weight and bias of ``scale * layer + shift``, worked out in float64."""
    wide = weight.to(torch.float64) * scale.reshape(-1, *(1,) * (weight.dim() - 1))
    moved = shift if bias is None else bias.to(torch.float64) * scale + shift
    return wide.to(weight.dtype), moved.to(weight.dtype)


@operator("Conv")
def conv(node: Node) -> Value:
    """Convolution in one to three dimensions."""
    result = convolved(node, node[0], node[1], node.get(2))
    operands = (node[0], node[1], node.get(2))
    result.product = Product(operands, lambda x, w, b: convolved(node, x, w, b), axis=1, units=0)
    return result


def convolved(node: Node, x: Value, weight: Value, bias: Value | None) -> Value:
    """Write the convolution that a node's attributes describe."""
    if weight.shape is None or not 3 <= len(weight.shape) <= 5:
        raise node.unsupported("expected a weight of one to three spatial dimensions")
    window = read_window(node, x, kernel=dimensions(weight.shape, 2))
    return _Layer(node, x, window, node.integer("group", 1)).write(weight, bias)


@operator("FusedConv", domain=MICROSOFT)
def fused_conv(node: Node) -> Value:
    """Convolution, an optional sum, and an activation."""
    result = convolved(node, node[0], node[1], node.get(2))
    if node.get(3) is not None:
        result = node.emit(torch.add, result, node[3])
    return activate(node, result)


def activate(node: Node, x: Value) -> Value:
    """Apply the activation that onnxruntime merged into a node."""
    word = node.choice(
        "activation", "", "Relu", "Tanh", "Sigmoid", "LeakyRelu", "Clip", "HardSigmoid"
    )
    params = node.reals("activation_params") or ()
    match word:
        case "Relu":
            return node.emit(torch.relu, x)
        case "Tanh":
            return node.emit(torch.tanh, x)
        case "Sigmoid":
            return node.emit(torch.sigmoid, x)
        case "LeakyRelu":
            return node.emit(F.leaky_relu, x, params[0])
        case "Clip":
            return node.emit(torch.clamp, x, params[0], params[1])
        case "HardSigmoid":
            line = node.emit(torch.add, node.emit(torch.mul, x, params[0]), params[1])
            return node.emit(torch.clamp, line, 0.0, 1.0)
    return x


@operator("ConvTranspose")
def conv_transpose(node: Node) -> Value:
    """Transposed convolution; uneven pads are cut off the full result."""
    x, weight = node[0], node[1]
    kernel = dimensions(weight.shape, 2)
    if kernel is None or not 1 <= len(kernel) <= 3:
        raise node.unsupported("expected a weight of one to three spatial dimensions")
    none = (0,) * len(kernel)
    strides = node.integers("strides") or (1,) * len(kernel)
    dilations = node.integers("dilations") or (1,) * len(kernel)
    extra = node.integers("output_padding") or none
    rest = (extra, node.integer("group", 1), dilations)
    spread = _SPREAD[len(kernel)]
    pads = node.integers("pads") or 2 * none
    begins, ends = pads[: len(kernel)], pads[len(kernel) :]
    explicit = (
        not node.has("output_shape") and node.choice("auto_pad", "NOTSET", *_AUTO) == "NOTSET"
    )
    if explicit and begins == ends:
        return node.emit(spread, x, weight, node.get(2), strides, begins, *rest)
    full = node.emit(spread, x, weight, node.get(2), strides, none, *rest)
    sizes, inner = dimensions(full.shape, 2), dimensions(x.shape, 2)
    if sizes is None or inner is None:
        raise node.unsupported("the size of its input is not fixed")
    if not explicit:
        begins, ends = _wanted_cuts(node, sizes, inner, strides)
    for axis, (size, begin, end) in enumerate(zip(sizes, begins, ends, strict=True), start=2):
        if begin or end:
            full = node.emit(torch.narrow, full, axis, begin, size - begin - end)
    return full


_AUTO = ("VALID", "SAME_UPPER", "SAME_LOWER")


def _wanted_cuts(
    node: Node, sizes: tuple[int, ...], inner: tuple[int, ...], strides: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return what to cut off both ends so that the result has the size the node asks for."""
    mode = node.choice("auto_pad", "NOTSET", *_AUTO)
    wanted = node.integers("output_shape")
    if wanted is not None:
        targets = wanted[-len(sizes) :]
    elif mode == "VALID":
        targets = sizes
    else:
        targets = tuple(size * stride for size, stride in zip(inner, strides, strict=True))
    totals = [size - target for size, target in zip(sizes, targets, strict=True)]
    if min(totals) < 0:
        raise node.unsupported("asks for a result larger than the convolution spreads")
    less, more = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
    return (less, more) if mode == "SAME_UPPER" else (more, less)
