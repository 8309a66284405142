"""Reductions, and what sorts or accumulates along an axis."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from onnxfr.models.graph.builder import modest
from onnxfr.models.graph.node import Node
from onnxfr.models.graph.rules import operator
from onnxfr.models.graph.values import Value

Axes = tuple[int, ...]


def sum_over(x: Tensor, axes: Axes, keep: bool) -> Tensor:
    """Sum; integers keep their type."""
    return torch.sum(x, axes, keepdim=keep, dtype=x.dtype)


def mean_over(x: Tensor, axes: Axes, keep: bool) -> Tensor:
    """Mean; of integers towards zero."""
    if x.is_floating_point():
        return torch.mean(x, axes, keepdim=keep)
    count = torch.Size([x.shape[axis] for axis in axes]).numel()
    return torch.div(sum_over(x, axes, keep), count, rounding_mode="trunc")


def product_over(x: Tensor, axes: Axes, keep: bool) -> Tensor:
    """Product over several axes, which torch takes one by one."""
    for axis in sorted(axes, reverse=True):
        x = torch.prod(x, axis, keepdim=keep, dtype=x.dtype)
    return x


def largest(x: Tensor, axes: Axes, keep: bool) -> Tensor:
    """Largest entry."""
    return torch.amax(x, axes, keepdim=keep)


def smallest(x: Tensor, axes: Axes, keep: bool) -> Tensor:
    """Smallest entry."""
    return torch.amin(x, axes, keepdim=keep)


def norm_1(x: Tensor, axes: Axes, keep: bool) -> Tensor:
    """Sum of magnitudes."""
    return sum_over(x.abs(), axes, keep)


def norm_2(x: Tensor, axes: Axes, keep: bool) -> Tensor:
    """Euclidean length."""
    if not x.is_floating_point():
        return sum_over(x * x, axes, keep).to(torch.float64).sqrt().to(x.dtype)
    norm: Tensor = torch.linalg.vector_norm(x, 2, dim=axes, keepdim=keep)
    return norm


def log_sum(x: Tensor, axes: Axes, keep: bool) -> Tensor:
    """Logarithm of the sum."""
    return torch.log(sum_over(x, axes, keep))


def log_sum_exp(x: Tensor, axes: Axes, keep: bool) -> Tensor:
    """Logarithm of the sum of exponentials."""
    return torch.logsumexp(x, axes, keepdim=keep)


def sum_square(x: Tensor, axes: Axes, keep: bool) -> Tensor:
    """Sum of squares."""
    return sum_over(x * x, axes, keep)


Reduction = Callable[[Tensor, Axes, bool], Tensor]

REDUCTIONS: dict[str, Reduction] = {
    "ReduceL1": norm_1,
    "ReduceL2": norm_2,
    "ReduceLogSum": log_sum,
    "ReduceLogSumExp": log_sum_exp,
    "ReduceMax": largest,
    "ReduceMean": mean_over,
    "ReduceMin": smallest,
    "ReduceProd": product_over,
    "ReduceSum": sum_over,
    "ReduceSumSquare": sum_square,
}


@modest
def over_axes(x: Tensor, name: str, axes: Axes | None, keep: bool) -> Tensor:
    """Reduce over the given axes, or all of them."""
    function = REDUCTIONS[name]
    if x.dim() == 0:
        return function(x.reshape(1), (0,), False)
    every = tuple(range(x.dim()))
    return function(x, every if axes is None else tuple(a % x.dim() for a in axes), keep)


def reduce_by_attribute(node: Node) -> Value:
    """Reduce over the axes an attribute names."""
    return _reduce(node, node.integers("axes"))


def reduce_by_input(node: Node) -> Value:
    """Reduce over the axes an input names; none may mean all or none."""
    axes = node.fixed_numbers(1, "list of axes") or None
    if axes is None and node.integer("noop_with_empty_axes", 0):
        return node.emit(entry_wise, node[0], _own_name(node))
    return _reduce(node, axes)


def _own_name(node: Node) -> str:
    """Return the operator's name as we spell it, not as the file does."""
    return next(name for name in REDUCTIONS if name == node.operator)


def _reduce(node: Node, axes: Axes | None) -> Value:
    x, keep = node[0], bool(node.integer("keepdims", 1))
    if x.rank and x.dtype is not None and x.dtype.is_floating_point:
        places = tuple(range(x.rank)) if axes is None else tuple(axis % x.rank for axis in axes)
        return node.emit(REDUCTIONS[node.operator], x, places, keep)
    return node.emit(over_axes, x, _own_name(node), axes, keep)


def entry_wise(x: Tensor, name: str) -> Tensor:
    """Reduce over no axis: each entry by itself."""
    return REDUCTIONS[name](x.unsqueeze(-1), (x.dim(),), False)


for _name in REDUCTIONS:
    operator(_name)(reduce_by_attribute)
    operator(_name, since=13 if _name == "ReduceSum" else 18)(reduce_by_input)


@operator("ArgMax", "ArgMin")
def arg_extreme(node: Node) -> Value:
    """Place of the largest or smallest entry."""
    sign = 1 if node.operator == "ArgMax" else -1
    axis, keep = node.integer("axis", 0), bool(node.integer("keepdims", 1))
    last = bool(node.integer("select_last_index", 0))
    return node.emit(place_of_extreme, node[0], sign, axis, keep, last)


def place_of_extreme(x: Tensor, sign: int, axis: int, keep: bool, last: bool) -> Tensor:
    """Return the first (or last) place of the extreme entry."""
    values = x if sign > 0 else -x
    if not last:
        return torch.argmax(values, dim=axis, keepdim=keep)
    return x.shape[axis] - 1 - torch.argmax(values.flip(axis), dim=axis, keepdim=keep)


@operator("TopK", since=10)
def top_k(node: Node) -> list[Value]:
    """The k largest or smallest entries and their places."""
    count = int(node.constant(1, "count").reshape(-1)[0])
    axis, large = node.integer("axis", -1), bool(node.integer("largest", 1))
    return node.emit_many(2, extremes, node[0], count, axis, large)


def extremes(x: Tensor, count: int, axis: int, large: bool) -> tuple[Tensor, Tensor]:
    """Sort stably, so that equal entries keep their order as onnxruntime's do."""
    values, places = torch.sort(x, dim=axis, descending=large, stable=True)
    return values.narrow(axis, 0, count), places.narrow(axis, 0, count)


@operator("CumSum", since=11)
def cumulative_sum(node: Node) -> Value:
    """Running sum."""
    return node.emit(running_sum, node[0], *_direction(node))


@operator("CumProd", since=26)
def cumulative_product(node: Node) -> Value:
    """Running product."""
    return node.emit(running_product, node[0], *_direction(node))


def _direction(node: Node) -> tuple[int, bool, bool]:
    axis = int(node.constant(1, "axis").reshape(-1)[0])
    return axis, bool(node.integer("exclusive", 0)), bool(node.integer("reverse", 0))


def running_sum(x: Tensor, axis: int, exclusive: bool, backwards: bool) -> Tensor:
    """Sum up to each entry, with or without it, from either end."""
    ordered = _ordered(x, axis, exclusive, backwards, 0.0)
    result = torch.cumsum(ordered, axis, dtype=x.dtype)
    return result.flip(axis) if backwards else result


def running_product(x: Tensor, axis: int, exclusive: bool, backwards: bool) -> Tensor:
    """Multiply up to each entry, with or without it, from either end."""
    ordered = _ordered(x, axis, exclusive, backwards, 1.0)
    result = torch.cumprod(ordered, axis, dtype=x.dtype)
    return result.flip(axis) if backwards else result


def _ordered(x: Tensor, axis: int, exclusive: bool, backwards: bool, neutral: float) -> Tensor:
    x = x.flip(axis) if backwards else x
    if not exclusive:
        return x
    first = torch.full_like(x.narrow(axis, 0, 1), neutral)
    return torch.cat([first, x.narrow(axis, 0, x.shape[axis] - 1)], axis)
