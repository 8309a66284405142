"""Matrix products."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from onnxfr.models.graph.node import Node
from onnxfr.models.graph.ops.convolution import activate, rescaled
from onnxfr.models.graph.rules import MICROSOFT, operator
from onnxfr.models.graph.values import Product, Value


@dataclass(frozen=True)
class _Dense:
    """A fully connected layer that can be written again with other weights."""

    node: Node
    x: Value

    def write(self, weight: Tensor, bias: Tensor | None) -> Value:
        shift = None if bias is None else Value.constant_of(bias)
        result = self._emit(Value.constant_of(weight), shift, weight.shape[0])
        if result.rank is not None:
            result.channel_axis = result.rank - 1
            result.rescale = lambda scale, move: self.write(*rescaled(weight, bias, scale, move))
        return result

    def _emit(self, weight: Value, bias: Value | None, units: int) -> Value:
        trials = self.x.trials
        if trials is None or self.x.real or weight.shape is None:
            return self.node.emit(F.linear, self.x, weight, bias)
        known = tuple(trial[..., :1].expand(*trial.shape[:-1], units) for trial in trials)
        return self.node.builder.emit_known(known, F.linear, self.x, weight, bias)


@operator("Gemm", since=7)
def gemm(node: Node) -> Value:
    """``alpha * A' B' + beta * C``."""
    result = _gemm(node)
    if node.real("alpha", 1.0) == node.real("beta", 1.0) == 1.0 and not node.integer("transA", 0):
        across = bool(node.integer("transB", 0))

        def write(a: Value, b: Value, c: Value | None) -> Value:
            b = node.emit(torch.transpose, b, 0, 1) if across else b
            return node.emit(weighted_product, a, b, c, 1.0, 1.0)

        operands = (node[0], node[1], node.get(2))
        result.product = Product(operands, write, axis=1, units=0 if across else 1)
    return result


def _gemm(node: Node) -> Value:
    a, b, c = node[0], node[1], node.get(2)
    alpha, beta = node.real("alpha", 1.0), node.real("beta", 1.0)
    if node.integer("transA", 0):
        a = node.emit(torch.transpose, a, 0, 1)
    weight = b.constant
    bias = None if c is None else c.constant
    if weight is not None and weight.dim() == 2 and (c is None or bias is not None):
        weight = weight if node.integer("transB", 0) else weight.t()
        weight = (weight * alpha).contiguous()
        units = weight.shape[0]
        if bias is None:
            return _Dense(node, a).write(weight, None)
        if bias.numel() == 1 or (bias.numel() == units and bias.shape[-1] == units):
            return _Dense(node, a).write(weight, (bias * beta).reshape(-1).expand(units))
    if node.integer("transB", 0):
        b = node.emit(torch.transpose, b, 0, 1)
    return node.emit(weighted_product, a, b, c, alpha, beta)


def weighted_product(a: Tensor, b: Tensor, c: Tensor | None, alpha: float, beta: float) -> Tensor:
    """Return ``alpha * a @ b + beta * c``."""
    product = alpha * torch.matmul(a, b)
    return product if c is None else product + beta * c


@operator("FusedGemm", domain=MICROSOFT)
def fused_gemm(node: Node) -> Value:
    """Gemm and an activation."""
    return activate(node, _gemm(node))


@operator("MatMul")
def matmul(node: Node) -> Value:
    """Matrix product with broadcasting over leading axes."""
    weight = node[1].constant
    if weight is not None and weight.dim() == 2 and node[0].constant is None:
        result = _Dense(node, node[0]).write(weight.t().contiguous(), None)
    else:
        result = node.emit(torch.matmul, node[0], node[1])
    operands = (node[0], node[1], None)
    result.product = Product(
        operands, lambda a, b, _: node.emit(torch.matmul, a, b), axis=-1, units=-1
    )
    return result


@operator("FusedMatMul", domain=MICROSOFT)
def fused_matmul(node: Node) -> Value:
    """Matrix product with transposed inputs and a factor."""
    if node.integer("transBatchA", 0) or node.integer("transBatchB", 0):
        raise node.unsupported("transposed batch axes")
    a, b = node[0], node[1]
    if node.integer("transA", 0):
        a = node.emit(torch.transpose, a, -1, -2)
    if node.integer("transB", 0):
        b = node.emit(torch.transpose, b, -1, -2)
    return node.emit(weighted_product, a, b, None, node.real("alpha", 1.0), 0.0)


@operator("Einsum", since=12)
def einsum(node: Node) -> Value:
    """Sum of products over named axes."""
    equation = "".join(node.text("equation").split())
    if not re.fullmatch(r"[A-Za-z.,]+(->[A-Za-z.]*)?", equation):
        raise node.unsupported("its equation holds other characters than letters, dots and commas")
    return node.emit(torch.einsum, equation, *node.present())
