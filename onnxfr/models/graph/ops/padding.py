"""Padding: by a constant, by reflection, by the edge, or around."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from onnxfr.models.graph.node import Node
from onnxfr.models.graph.ops.layout import Numbers, as_list
from onnxfr.models.graph.rules import operator
from onnxfr.models.graph.values import Value


@operator("Pad", since=2)
def pad_attributes(node: Node) -> Value:
    """Pad; amounts and value are attributes."""
    pads = node.integers("pads") or ()
    return node.emit(padded, node[0], pads, node.real("value", 0.0), None, _mode(node))


@operator("Pad", since=11)
def pad(node: Node) -> Value:
    """Pad by a constant, by reflection, by the edge, or around."""
    value = node.get(2)
    fill = 0 if value is None else node.constant(2, "padding value").item()
    return node.emit(padded, node[0], node.numbers(1), fill, node.numbers(3), _mode(node))


def _mode(node: Node) -> str:
    return node.choice("mode", "constant", "reflect", "edge", "wrap")


def padded(x: Tensor, pads: Numbers, value: float, axes: Numbers | None, mode: str) -> Tensor:
    """Pad; negative amounts cut. Other modes than ``constant`` pick existing entries."""
    amounts = as_list(pads)
    where = list(range(x.dim())) if axes is None else [axis % x.dim() for axis in as_list(axes)]
    begins, ends = [0] * x.dim(), [0] * x.dim()
    for axis, begin, end in zip(where, amounts, amounts[len(where) :], strict=False):
        begins[axis], ends[axis] = begin, end
    if mode == "constant":
        pairs = zip(reversed(begins), reversed(ends), strict=True)
        return F.pad(x, [amount for pair in pairs for amount in pair], "constant", value)
    for axis in range(x.dim()):
        if begins[axis] or ends[axis]:
            x = x.index_select(axis, _sources(x, axis, begins[axis], ends[axis], mode))
    return x


def _sources(x: Tensor, axis: int, begin: int, end: int, mode: str) -> Tensor:
    """Return which entry of an axis each entry of the padded axis repeats.

    Negative amounts cut first: what was cut off is not repeated at the other end.
    """
    first = max(-begin, 0)
    size = x.shape[axis] + min(end, 0) - first
    places = torch.arange(-max(begin, 0), size + max(end, 0), device=x.device)
    if mode == "edge":
        return first + places.clamp(0, size - 1)
    if mode == "wrap":
        return first + places.remainder(size)
    period = max(2 * (size - 1), 1)
    folded = places.remainder(period)
    folded = torch.minimum(folded, period - folded) if size > 1 else torch.zeros_like(places)
    return first + folded
