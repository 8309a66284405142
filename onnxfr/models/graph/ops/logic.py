"""Comparisons, choices and bits."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from onnxfr.models.graph.node import Node
from onnxfr.models.graph.ops.elementwise import binary
from onnxfr.models.graph.rules import Rule, operator
from onnxfr.models.graph.values import Value

BINARY: dict[str, tuple[int, Callable[..., Tensor]]] = {
    "And": (7, torch.logical_and),
    "BitwiseAnd": (18, torch.bitwise_and),
    "BitwiseOr": (18, torch.bitwise_or),
    "BitwiseXor": (18, torch.bitwise_xor),
    "Equal": (7, torch.eq),
    "Greater": (7, torch.gt),
    "GreaterOrEqual": (12, torch.ge),
    "Less": (7, torch.lt),
    "LessOrEqual": (12, torch.le),
    "Or": (7, torch.logical_or),
    "Xor": (7, torch.logical_xor),
}


def _binary(function: Callable[..., Tensor]) -> Rule:
    def rule(node: Node) -> Value:
        return binary(node, function)

    return rule


for _name, (_since, _function) in BINARY.items():
    operator(_name, since=_since)(_binary(_function))


@operator("Not")
def negation(node: Node) -> Value:
    """The opposite truth value."""
    return node.emit(torch.logical_not, node[0])


@operator("Where", since=9)
def where(node: Node) -> Value:
    """Choose between two values entry by entry."""
    return node.emit(torch.where, node[0], node[1], node[2])


@operator("IsNaN", since=9)
def is_nan(node: Node) -> Value:
    """Whether an entry is no number."""
    return node.emit(torch.isnan, node[0])


@operator("IsInf", since=10)
def is_inf(node: Node) -> Value:
    """Whether an entry is infinite, of the signs asked for."""
    low, high = node.integer("detect_negative", 1), node.integer("detect_positive", 1)
    return node.emit(infinite, node[0], bool(low), bool(high))


def infinite(x: Tensor, negative: bool, positive: bool) -> Tensor:
    """Mark infinite entries of the chosen signs."""
    if negative and positive:
        return torch.isinf(x)
    if negative or positive:
        return torch.isneginf(x) if negative else torch.isposinf(x)
    return torch.zeros_like(x, dtype=torch.bool)


@operator("Trilu", since=14)
def trilu(node: Node) -> Value:
    """Keep the upper or lower triangle."""
    diagonal = 0 if node.get(1) is None else int(node.constant(1, "diagonal").reshape(-1)[0])
    keep = torch.triu if node.integer("upper", 1) else torch.tril
    return node.emit(keep, node[0], diagonal)
