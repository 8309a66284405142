"""Quantised operators: whole numbers carried as floats, rounding with a straight-through gradient.

Sums of products are taken over the whole numbers and scaled once at the end, as onnxruntime's
integer kernels do, so that both engines round the same number.
"""

from __future__ import annotations

import torch
from onnx import TensorProto
from torch import Tensor

from onnxfr.models.graph.node import Node
from onnxfr.models.graph.ops.convolution import convolved
from onnxfr.models.graph.ops.rounding import round_through
from onnxfr.models.graph.rules import MICROSOFT, operator
from onnxfr.models.graph.tensors import ELEM_TYPES, INTEGER_RANGES, type_name
from onnxfr.models.graph.values import Product, Value, Whole

_STEP_TOLERANCE = 1e-5
"""How far the stored scale of a bias may be from the product it was rounded from, relatively."""


def spread(parameter: Tensor, x: Tensor, axis: int, block: int) -> Tensor:
    """Shape one scale per tensor, per slice of an axis, or per block so that it broadcasts."""
    if parameter.numel() == 1:
        return parameter.reshape(())
    if block:
        return parameter.repeat_interleave(block, axis).narrow(axis, 0, x.shape[axis])
    return parameter.reshape(-1, *(1,) * (x.dim() - 1 - axis % x.dim()))


def dequantized(
    x: Tensor, scale: Tensor, zero: Tensor | None, axis: int = 1, block: int = 0
) -> Tensor:
    """Return ``(x - zero) * scale``."""
    x = x.to(scale.dtype)
    if zero is not None:
        x = x - spread(zero, x, axis, block).to(scale.dtype)
    return x * spread(scale, x, axis, block)


def quantized(
    x: Tensor,
    scale: Tensor,
    zero: Tensor | None,
    low: int,
    high: int,
    axis: int = 1,
    block: int = 0,
) -> Tensor:
    """Round ``x / scale`` to whole numbers and clip ``+ zero`` to the type's range."""
    steps = round_through(x / spread(scale, x, axis, block))
    if zero is not None:
        steps = steps + spread(zero, x, axis, block).to(x.dtype)
    return torch.clamp(steps, low, high)


def integer_range(node: Node, zero: Value | None, elem_type: int = 0) -> tuple[int, int, int]:
    """Return the element type of a quantised result and the numbers it can hold."""
    if zero is not None:
        own = ELEM_TYPES[zero.dtype or torch.uint8]
        elem_type = zero.elem_type or (own if own in INTEGER_RANGES else 0)
    elem_type = elem_type or TensorProto.UINT8
    if elem_type not in INTEGER_RANGES:
        raise node.unsupported(f"quantises to {type_name(elem_type)}, expected integers")
    return (elem_type, *INTEGER_RANGES[elem_type])


@operator("QuantizeLinear", since=10)
@operator("QuantizeLinear", domain=MICROSOFT)
def quantize_linear(node: Node) -> Value:
    """Quantise per tensor, per axis or per block."""
    zero, product = node.get(2), node[0].product
    if product is not None and node[1].rank == 0 and node.only_reads(node[0]):
        exact = _exact(node, product, zero)
        if exact is not None:
            return exact
    elem_type, low, high = integer_range(node, zero, node.integer("output_dtype", 0))
    axis, block = node.integer("axis", 1), node.integer("block_size", 0)
    result = node.emit_like_input(quantized, node[0], node[1], zero, low, high, axis, block)
    result.elem_type = elem_type
    return result


@operator("DequantizeLinear", since=10)
@operator("DequantizeLinear", domain=MICROSOFT)
def dequantize_linear(node: Node) -> Value:
    """Turn whole numbers back into reals, per tensor, per axis or per block."""
    axis, block = node.integer("axis", 1), node.integer("block_size", 0)
    result = node.emit(dequantized, node[0], node[1], node.get(2), axis, block)
    if not block:
        result.whole = Whole(node[0], node[1], node.get(2), axis)
    return result


def _exact(node: Node, product: Product, zero: Value | None) -> Value | None:
    """Take a layer between dequantised operands and a quantised result in whole numbers.

    Onnxruntime merges such a layer into its integer kernel; rounding float sums instead would
    differ by one step here and there, which a deep network amplifies. None where the whole numbers
    cannot simply be multiplied and added.
    """
    first, second, bias = product.operands
    parts = [value.whole for value in (first, second, bias) if value is not None]
    whole = [part for part in parts if part is not None]
    if len(whole) < len(parts) or not _same_steps(whole, second, product.units):
        return None
    like = node.builder.anchor
    numbers = [node.emit(centred, w.numbers, w.zero, like, w.axis) for w in whole]
    sums = product.write(numbers[0], numbers[1], numbers[2] if bias is not None else None)
    scales = (whole[0].scale, whole[1].scale, node[1])
    return _requantized(node, sums, scales, zero, product.axis)


def _same_steps(whole: list[Whole], weight: Value, units: int) -> bool:
    """Whether all sums of a unit count in steps of one size, its bias too.

    Nothing in a file ties the scale of the bias to the product of the other two; without checking
    it, whole numbers of different worth would be added.
    """
    first, second, *bias = whole
    if first.scale.rank != 0 or second.scale.shape is None:
        return False
    if second.scale.shape not in ((), (1,)):
        rank = weight.rank
        if rank is None or second.axis % rank != units % rank:
            return False
    if not bias:
        return True
    scales = [part.scale.constant for part in (first, second, bias[0])]
    known = [scale.double().reshape(-1) for scale in scales if scale is not None]
    if len(known) < len(scales):
        return False
    step = known[0] * known[1]
    return bool(torch.isclose(known[2], step, rtol=_STEP_TOLERANCE, atol=0.0).all())


@operator("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(node: Node) -> list[Value]:
    """Quantise to uint8 by the range of the values themselves."""
    values = node.emit_many(3, dynamically_quantized, node[0])
    for value in (values[0], values[2]):
        value.elem_type = TensorProto.UINT8
    return values


def dynamically_quantized(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return whole numbers, their scale and their zero point."""
    low, high = x.amin().clamp(max=0), x.amax().clamp(min=0)
    scale = torch.where(high == low, torch.ones_like(high), (high - low) / 255)
    zero = round_through(torch.clamp(-low / scale, 0, 255))
    return torch.clamp(round_through(x / scale) + zero, 0, 255), scale, zero


def centred(x: Tensor, zero: Tensor | None, like: Tensor, axis: int) -> Tensor:
    """Return ``x - zero`` in the network's float type."""
    x = x.to(like.dtype)
    return x if zero is None else x - spread(zero, x, axis, 0).to(like.dtype)


def _centred(node: Node, index: int, zero: int, axis: int = 1) -> Value:
    return node.emit(centred, node[index], node.get(zero), node.builder.anchor, axis)


def _requantized(
    node: Node, sums: Value, scales: tuple[Value, Value, Value], zero: Value | None, axis: int
) -> Value:
    """Scale sums of whole numbers to the result's own whole numbers."""
    elem_type, low, high = integer_range(node, zero, node.integer("output_dtype", 0))
    result = node.emit(requantized, sums, *scales, zero, low, high, axis)
    result.elem_type = elem_type
    return result


def requantized(
    sums: Tensor,
    first: Tensor,
    second: Tensor,
    scale: Tensor,
    zero: Tensor | None,
    low: int,
    high: int,
    axis: int,
) -> Tensor:
    """Return ``round(sums * first * second / scale) + zero`` clipped to the type's range."""
    factor = spread(first * second / scale, sums, axis, 0)
    steps = round_through(sums * factor)
    if zero is not None:
        steps = steps + zero.reshape(()).to(sums.dtype)
    return torch.clamp(steps, low, high)


@operator("MatMulInteger", since=10)
def matmul_integer(node: Node) -> Value:
    """Product of matrices of whole numbers."""
    return node.emit(torch.matmul, _centred(node, 0, 2, -2), _centred(node, 1, 3, -1))


@operator("ConvInteger", since=10)
def conv_integer(node: Node) -> Value:
    """Convolution of whole numbers."""
    return convolved(node, _centred(node, 0, 2), _centred(node, 1, 3, 0), None)


@operator("QLinearMatMul", since=10)
def qlinear_matmul(node: Node) -> Value:
    """Product of quantised matrices, quantised again."""
    sums = node.emit(torch.matmul, _centred(node, 0, 2, -2), _centred(node, 3, 5, -1))
    return _requantized(node, sums, (node[1], node[4], node[6]), node.get(7), -1)


@operator("QLinearConv", since=10)
def qlinear_conv(node: Node) -> Value:
    """Convolution of quantised values, quantised again; its bias is in whole numbers too."""
    if node.integer("channels_last", 0):
        raise node.unsupported("channels_last")
    bias = None if node.get(8) is None else _centred(node, 8, 9)
    sums = convolved(node, _centred(node, 0, 2), _centred(node, 3, 5, 0), bias)
    return _requantized(node, sums, (node[1], node[4], node[6]), node.get(7), 1)


@operator("QGemm", domain=MICROSOFT)
def qgemm(node: Node) -> Value:
    """Gemm of quantised values; its result is quantised or real."""
    a, b = _centred(node, 0, 2), _centred(node, 3, 5, 0 if node.integer("transB", 0) else 1)
    if node.integer("transA", 0):
        a = node.emit(torch.transpose, a, 0, 1)
    if node.integer("transB", 0):
        b = node.emit(torch.transpose, b, 0, 1)
    sums = node.emit(torch.matmul, a, b)
    alpha = node.real("alpha", 1.0)
    if alpha != 1.0:
        sums = node.emit(torch.mul, sums, alpha)
    if node.get(6) is not None:
        sums = node.emit(torch.add, sums, _centred(node, 6, len(node.inputs)))
    if node.get(7) is not None:
        return _requantized(node, sums, (node[1], node[4], node[7]), node.get(8), 1)
    return node.emit(torch.mul, sums, node.emit(torch.mul, node[1], node[4]))
