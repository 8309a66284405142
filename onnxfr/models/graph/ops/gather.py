"""Operators that pick and place entries by index."""

from __future__ import annotations

import torch
from torch import Tensor

from onnxfr.models.graph.builder import modest
from onnxfr.models.graph.node import Node
from onnxfr.models.graph.rules import operator
from onnxfr.models.graph.values import Value


@operator("Gather")
def gather(node: Node) -> Value:
    """Pick slices along an axis; negative indices count from the end."""
    index, axis = node[1].constant, node.integer("axis", 0)
    if index is not None and index.dim() == 0 and node[0].constant is None:
        return node.emit(torch.select, node[0], axis, int(index))
    return node.emit(taken, node[0], node[1], axis)


@modest
def taken(x: Tensor, index: Tensor, axis: int) -> Tensor:
    """Pick slices; the axis is replaced by the shape of the index."""
    axis = axis % x.dim()
    flat = torch.where(index < 0, index + x.shape[axis], index).reshape(-1).to(torch.int64)
    picked = x.index_select(axis, flat)
    return picked.reshape([*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]])


@operator("GatherElements", since=11)
def gather_elements(node: Node) -> Value:
    """Pick one entry per entry of the index."""
    return node.emit(taken_along, node[0], node[1], node.integer("axis", 0))


def taken_along(x: Tensor, index: Tensor, axis: int) -> Tensor:
    """Pick entries along one axis."""
    return torch.gather(x, axis, positive(index, x.shape[axis]))


def positive(index: Tensor, size: int) -> Tensor:
    """Return indices counted from the start."""
    return torch.where(index < 0, index + size, index).to(torch.int64)


@operator("GatherND", since=11)
def gather_nd(node: Node) -> Value:
    """Pick slices by index tuples."""
    return node.emit(taken_by_tuples, node[0], node[1], node.integer("batch_dims", 0))


def taken_by_tuples(x: Tensor, index: Tensor, batch_dims: int) -> Tensor:
    """Pick slices by the tuples on the last axis of ``index``."""
    lead = x.shape[:batch_dims]
    count = lead.numel()
    flat = x.reshape(count, *x.shape[batch_dims:])
    depth = index.shape[-1]
    tuples = index.reshape(count, -1, depth)
    keys = [positive(tuples[..., i], flat.shape[i + 1]) for i in range(depth)]
    rows = torch.arange(count, device=x.device).reshape(-1, 1).expand(tuples.shape[:2])
    picked = flat[(rows, *keys)]
    return picked.reshape([*lead, *index.shape[batch_dims:-1], *flat.shape[depth + 1 :]])


@operator("ScatterND", since=11)
def scatter_nd(node: Node) -> Value:
    """Write slices by index tuples."""
    how = node.choice("reduction", "none", "add", "mul", "max", "min")
    return node.emit(written_by_tuples, node[0], node[1], node[2], how)


_REDUCE = {"mul": "prod", "max": "amax", "min": "amin", "add": "sum"}


def written_by_tuples(x: Tensor, index: Tensor, updates: Tensor, how: str) -> Tensor:
    """Write slices by the tuples on the last axis of ``index``."""
    depth = index.shape[-1]
    keys = [positive(index[..., i], x.shape[i]) for i in range(depth)]
    if how == "none":
        return x.index_put(tuple(keys), updates)
    if how == "add":
        return x.index_put(tuple(keys), updates, accumulate=True)
    flat = torch.zeros_like(keys[0])
    for key, size in zip(keys, x.shape, strict=False):
        flat = flat * size + key
    rows = x.reshape(x.shape[:depth].numel(), -1)
    places = flat.reshape(-1, 1).expand(-1, rows.shape[1])
    values = updates.reshape(places.shape)
    return rows.scatter_reduce(0, places, values, _REDUCE[how]).reshape(x.shape)


@operator("ScatterElements", since=11)
@operator("Scatter", since=9)
def scatter_elements(node: Node) -> Value:
    """Write one entry per entry of the index."""
    how = node.choice("reduction", "none", "add", "mul", "max", "min")
    return node.emit(written_along, node[0], node[1], node[2], node.integer("axis", 0), how)


def written_along(x: Tensor, index: Tensor, updates: Tensor, axis: int, how: str) -> Tensor:
    """Write entries along one axis."""
    places = positive(index, x.shape[axis])
    if how == "none":
        return x.scatter(axis, places, updates)
    return x.scatter_reduce(axis, places, updates, _REDUCE[how])


@operator("OneHot", since=9)
def one_hot(node: Node) -> Value:
    """Mark the place of each index along a new axis."""
    depth = int(node.constant(1, "depth").reshape(-1)[0])
    return node.emit(marked, node[0], depth, node[2], node.integer("axis", -1))


def marked(index: Tensor, depth: int, values: Tensor, axis: int) -> Tensor:
    """Return ``values[1]`` at the indices and ``values[0]`` elsewhere."""
    axis = axis % (index.dim() + 1)
    places = torch.arange(depth, device=index.device)
    wrapped = torch.where(index < 0, index + depth, index)
    hits = wrapped.unsqueeze(axis) == places.reshape(-1, *(1,) * (index.dim() - axis))
    return torch.where(hits, values[1], values[0])


@operator("Compress", since=9)
def compress(node: Node) -> Value:
    """Keep the slices a constant mask selects."""
    mask = node.constant(1, "mask").reshape(-1)
    places = Value.constant_of(torch.nonzero(mask).reshape(-1))
    if node.has("axis"):
        return node.emit(torch.index_select, node[0], node.integer("axis", 0), places)
    flat = node.emit(torch.flatten, node[0])
    return node.emit(torch.index_select, flat, 0, places)


@operator("NonZero", since=9)
def non_zero(node: Node) -> Value:
    """List the places of entries that are not zero."""
    return node.emit(places_of_non_zero, node[0])


def places_of_non_zero(x: Tensor) -> Tensor:
    """Return one column of indices per non-zero entry."""
    return torch.nonzero(x).t()


@operator("ReverseSequence", since=10)
def reverse_sequence(node: Node) -> Value:
    """Turn the first entries of each row around."""
    time, batch = node.integer("time_axis", 0), node.integer("batch_axis", 1)
    return node.emit(turned, node[0], node[1], time, batch)


def turned(x: Tensor, lengths: Tensor, time: int, batch: int) -> Tensor:
    """Reverse the first ``lengths[b]`` entries along the time axis of each row."""
    steps = torch.arange(x.shape[time], device=x.device)
    ends = lengths.reshape(-1, 1)
    places = torch.where(steps < ends, ends - 1 - steps, steps)
    moved = x.movedim((batch, time), (0, 1))
    index = places.reshape(*places.shape, *(1,) * (x.dim() - 2)).expand_as(moved)
    return torch.gather(moved, 1, index).movedim((0, 1), (batch, time))
