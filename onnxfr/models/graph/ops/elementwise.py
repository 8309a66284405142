"""Arithmetic and mathematical functions applied entry by entry."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from onnxfr.models.graph.builder import modest
from onnxfr.models.graph.node import Node
from onnxfr.models.graph.ops.rounding import integer_through
from onnxfr.models.graph.rules import Rule, operator
from onnxfr.models.graph.tensors import INTEGER_RANGES
from onnxfr.models.graph.values import Value

UNARY: dict[str, Callable[..., Tensor]] = {
    "Abs": torch.abs,
    "Acos": torch.acos,
    "Acosh": torch.acosh,
    "Asin": torch.asin,
    "Asinh": torch.asinh,
    "Atan": torch.atan,
    "Atanh": torch.atanh,
    "BitwiseNot": torch.bitwise_not,
    "Ceil": torch.ceil,
    "Cos": torch.cos,
    "Cosh": torch.cosh,
    "Erf": torch.erf,
    "Exp": torch.exp,
    "Floor": torch.floor,
    "Log": torch.log,
    "Neg": torch.neg,
    "Reciprocal": torch.reciprocal,
    "Round": torch.round,
    "Sign": torch.sign,
    "Sin": torch.sin,
    "Sinh": torch.sinh,
    "Sqrt": torch.sqrt,
    "Tan": torch.tan,
}
"""Rounding and Sign keep their true, zero gradient: a shattered gradient must stay visible."""


def _unary(function: Callable[..., Tensor]) -> Rule:
    def rule(node: Node) -> Value:
        return node.emit_like_input(function, node[0])

    return rule


for _name, _function in UNARY.items():
    operator(_name)(_unary(_function))


def plain(value: Value, other: Value) -> Any:
    """Return a one-number constant as a Python number where broadcasting ``other`` allows it."""
    tensor = value.constant
    if tensor is None or tensor.numel() != 1 or not tensor.is_floating_point():
        return value
    if other.constant is not None or other.rank is None or other.rank < tensor.dim():
        return value
    if other.dtype != tensor.dtype:
        return value
    return tensor.item()


def binary(node: Node, function: Callable[..., Tensor]) -> Value:
    """Write a broadcasting function of two values."""
    return node.emit(function, node[0], plain(node[1], node[0]))


def arithmetic(node: Node, function: Callable[..., Tensor]) -> Value:
    """Write a broadcasting function of two values that keeps their type.

    Whole numbers carried in floats are cut and wrapped into their type's range, as integers are.
    """
    result = node.builder.emit_broadcast(function, node[0], plain(node[1], node[0]))
    elem_type = node[0].carried or node[1].carried
    if elem_type:
        low, high = INTEGER_RANGES[elem_type]
        result = node.builder.emit_shaped(result, integer_through, result, low, high)
        result.elem_type = elem_type
    return result


@operator("Add", since=7)
def add(node: Node) -> Value:
    """Sum with broadcasting; a bias per channel is merged into the layer before it."""
    return _merged(node, 1.0) or arithmetic(node, torch.add)


@operator("Sub", since=7)
def sub(node: Node) -> Value:
    """Difference with broadcasting."""
    return arithmetic(node, torch.sub)


@operator("Mul", since=7)
def mul(node: Node) -> Value:
    """Product with broadcasting; a factor per channel is merged into the layer before it."""
    return _merged(node, 0.0) or arithmetic(node, torch.mul)


@operator("Div", since=7)
def div(node: Node) -> Value:
    """Quotient with broadcasting; integers are divided as C does, towards zero."""
    return arithmetic(node, divide)


@modest
def divide(left: Tensor, right: Tensor | float) -> Tensor:
    """Divide; integers towards zero."""
    whole = not left.is_floating_point()
    return torch.div(left, right, rounding_mode="trunc") if whole else torch.div(left, right)


@operator("Pow", since=7)
def power(node: Node) -> Value:
    """Power; the result has the type of the base."""
    exponent = node[1].constant
    floating = node[0].dtype is not None and node[0].dtype.is_floating_point
    if exponent is not None and exponent.numel() == 1 and floating and exponent.dim() == 0:
        return node.emit_like_input(torch.pow, node[0], float(exponent))
    return node.emit(raise_to, node[0], node[1])


@modest
def raise_to(base: Tensor, exponent: Tensor) -> Tensor:
    """Raise to a power, keeping the type of the base."""
    if base.is_floating_point():
        return torch.pow(base, exponent.to(base.dtype))
    return torch.pow(base.to(torch.float64), exponent.to(torch.float64)).to(base.dtype)


@operator("Mod", since=10)
def mod(node: Node) -> Value:
    """Remainder: sign of the divisor, or of the dividend with ``fmod``."""
    return binary(node, torch.fmod if node.integer("fmod", 0) else torch.remainder)


@operator("Sum", since=8)
def total(node: Node) -> Value:
    """Sum of any number of values."""
    return _chain(node, torch.add)


@operator("Max", since=8)
def maximum(node: Node) -> Value:
    """Largest of any number of values."""
    return _chain(node, torch.maximum)


@operator("Min", since=8)
def minimum(node: Node) -> Value:
    """Smallest of any number of values."""
    return _chain(node, torch.minimum)


@operator("Mean", since=8)
def mean(node: Node) -> Value:
    """Mean of any number of values."""
    return node.emit(torch.div, _chain(node, torch.add), len(node.present()))


def _chain(node: Node, function: Callable[..., Tensor]) -> Value:
    values = node.present()
    if len(values) == 1:
        return values[0]
    write = node.builder.emit_broadcast
    return reduce(lambda left, right: write(function, left, right), values)


@operator("Clip")
def clip_attributes(node: Node) -> Value:
    """Clip to bounds written as attributes."""
    low = node.real("min", -torch.inf) if node.has("min") else None
    high = node.real("max", torch.inf) if node.has("max") else None
    return _clipped(node, low, high)


@operator("Clip", since=11)
def clip(node: Node) -> Value:
    """Clip to optional bounds that may themselves be computed."""
    bounds = [None if bound is None else plain(bound, node[0]) for bound in map(node.get, (1, 2))]
    if any(isinstance(bound, Value) for bound in bounds):
        return node.emit_like_input(clip_between, node[0], *bounds)
    return _clipped(node, *bounds)


def _clipped(node: Node, low: float | None, high: float | None) -> Value:
    """Clip to numbers, by the operation of the fastest backward pass."""
    if low is None and high is None:
        return node[0]
    if low == 0 and high is None:
        return node.emit_like_input(torch.relu, node[0])
    if low is not None and high is not None and low < high:
        return node.emit_like_input(F.hardtanh, node[0], low, high)
    return node.emit_like_input(torch.clamp, node[0], low, high)


def clip_between(x: Tensor, low: Tensor | float | None, high: Tensor | float | None) -> Tensor:
    """Clip to bounds of which each is a tensor, a number, or open."""
    if low is not None:
        x = torch.clamp_min(x, low)
    if high is not None:
        x = torch.clamp_max(x, high)
    return x


@operator("BitShift", since=11)
def bit_shift(node: Node) -> Value:
    """Shift bits left or right."""
    right = node.choice("direction", "RIGHT", "LEFT") == "RIGHT"
    return binary(node, torch.bitwise_right_shift if right else torch.bitwise_left_shift)


def _merged(node: Node, neutral: float) -> Value | None:
    """Merge ``layer + c`` or ``layer * c`` into the layer if c is one constant per channel."""
    for layer, other in ((node[0], node[1]), (node[1], node[0])):
        constant = other.constant
        if layer.rescale is None or constant is None or layer.rank is None:
            continue
        if not node.only_reads(layer) or not constant.is_floating_point():
            continue
        channels = per_channel(constant, layer)
        if channels is None:
            continue
        if neutral == 0.0:
            return layer.rescale(channels, torch.zeros_like(channels))
        return layer.rescale(torch.ones_like(channels), channels)
    return None


def per_channel(constant: Tensor, layer: Value) -> Tensor | None:
    """Return ``constant`` as one float64 per channel if it broadcasts like that."""
    if layer.shape is None or constant.dim() > len(layer.shape):
        return None
    channels = layer.shape[layer.channel_axis]
    shape = (1,) * (len(layer.shape) - constant.dim()) + tuple(constant.shape)
    if not isinstance(channels, int) or shape[layer.channel_axis] not in (1, channels):
        return None
    if any(size != 1 for axis, size in enumerate(shape) if axis != layer.channel_axis):
        return None
    return constant.reshape(-1).to(torch.float64).expand(channels)
