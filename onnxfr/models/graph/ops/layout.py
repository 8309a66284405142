"""Operators that move entries without changing them: reshaping, joining, cutting, padding."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from onnxfr.models.graph.builder import broadcast_shape, modest
from onnxfr.models.graph.node import Node
from onnxfr.models.graph.rules import operator
from onnxfr.models.graph.values import Value

Numbers = Sequence[int] | Tensor


def as_list(numbers: Numbers) -> list[int]:
    """Return integers that may come as a tensor of the running network."""
    if isinstance(numbers, Tensor):
        return [int(entry) for entry in numbers.reshape(-1).tolist()]
    return list(numbers)


def to_known_shape(node: Node, result: Value) -> Value:
    """Replace a reshaping by the plain one to the shape it turned out to have."""
    if result.constant is None and result.shape is not None:
        return node.emit(torch.Tensor.reshape, node[0], result.shape)
    return result


@operator("Reshape", since=5)
def reshape(node: Node) -> Value:
    """Give the entries another shape: 0 copies a size, -1 takes the rest."""
    literal = bool(node.integer("allowzero", 0))
    return to_known_shape(node, node.emit(reshaped, node[0], node.numbers(1), literal))


@modest
def reshaped(x: Tensor, shape: Numbers, literal_zero: bool) -> Tensor:
    """Reshape by ONNX's rules for 0 and -1; also for an empty batch, where torch refuses -1."""
    sizes = as_list(shape)
    if not literal_zero:
        sizes = [x.shape[i] if size == 0 else size for i, size in enumerate(sizes)]
    if -1 in sizes and x.numel() == 0:
        others = [size for size in sizes if size > 0]
        whole = torch.Size([size for size in x.shape if size > 0]).numel()
        sizes[sizes.index(-1)] = whole // max(torch.Size(others).numel(), 1)
    return x.reshape(sizes)


@operator("Flatten")
def flatten(node: Node) -> Value:
    """Make a matrix, cutting the shape before ``axis``."""
    return to_known_shape(node, node.emit(flattened, node[0], node.integer("axis", 1)))


def flattened(x: Tensor, axis: int) -> Tensor:
    """Join the axes before ``axis`` and those from it on."""
    axis = axis + x.dim() if axis < 0 else axis
    return x.reshape(x.shape[:axis].numel(), x.shape[axis:].numel())


@operator("Squeeze")
def squeeze_attribute(node: Node) -> Value:
    """Drop axes of size one, named in an attribute."""
    return to_known_shape(node, node.emit(squeezed, node[0], node.integers("axes")))


@operator("Squeeze", since=13)
def squeeze(node: Node) -> Value:
    """Drop axes of size one."""
    axes = node.fixed_numbers(1, "list of axes")
    result = node.emit(squeezed, node[0], axes)
    return result if axes is None else to_known_shape(node, result)


@modest
def squeezed(x: Tensor, axes: tuple[int, ...] | None) -> Tensor:
    """Drop the given axes, or all of size one."""
    if axes is None:
        return x.squeeze()
    drop = {axis % x.dim() for axis in axes}
    return x.reshape([size for axis, size in enumerate(x.shape) if axis not in drop])


@operator("Unsqueeze")
def unsqueeze_attribute(node: Node) -> Value:
    """Insert axes of size one, named in an attribute."""
    return _unsqueezed(node, node.integers("axes") or ())


@operator("Unsqueeze", since=13)
def unsqueeze(node: Node) -> Value:
    """Insert axes of size one."""
    return _unsqueezed(node, node.fixed_numbers(1, "list of axes") or ())


def _unsqueezed(node: Node, axes: tuple[int, ...]) -> Value:
    if len(axes) == 1:
        return node.emit(torch.unsqueeze, node[0], axes[0])
    return to_known_shape(node, node.emit(with_unit_axes, node[0], axes))


@modest
def with_unit_axes(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Insert axes of size one at their places in the result."""
    rank = x.dim() + len(axes)
    places = {axis % rank for axis in axes}
    sizes = iter(x.shape)
    return x.reshape([1 if axis in places else next(sizes) for axis in range(rank)])


@operator("Transpose")
def transpose(node: Node) -> Value:
    """Reorder the axes; without an order, reverse them."""
    order = node.integers("perm")
    if order is None:
        return node.emit(reversed_axes, node[0])
    if order == tuple(range(len(order))):
        return node[0]
    return node.emit(torch.permute, node[0], order)


def reversed_axes(x: Tensor) -> Tensor:
    """Reverse the order of the axes."""
    return x.permute(*reversed(range(x.dim())))


@operator("Concat", since=4)
def concat(node: Node) -> Value:
    """Join values along an axis."""
    values = node.present()
    if len(values) == 1:
        return values[0]
    axis = node.integer("axis", 0)
    trials = [value.trials for value in values if value.trials is not None]
    if len(trials) < len(values) or all(value.real for value in values):
        return node.emit(torch.cat, tuple(values), axis)
    joined = tuple(joined_shape(parts, axis) for parts in zip(*trials, strict=True))
    return node.builder.emit_known(joined, torch.cat, tuple(values), axis)


def joined_shape(parts: Sequence[Tensor], axis: int) -> Tensor:
    """Return a tensor without content of the shape that joining gives."""
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    return torch.empty(shape, dtype=parts[0].dtype, device="meta")


@operator("Split", since=2)
def split_attribute(node: Node) -> list[Value]:
    """Cut into pieces whose sizes an attribute names."""
    return _pieces(node, node.integers("split"))


@operator("Split", since=13)
def split(node: Node) -> list[Value]:
    """Cut into pieces of given or equal sizes; the last may be smaller."""
    return _pieces(node, node.fixed_numbers(1, "list of sizes"))


def _pieces(node: Node, sizes: tuple[int, ...] | None) -> list[Value]:
    axis = node.integer("axis", 0)
    count = node.integer("num_outputs", node.outputs)
    return node.emit_many(node.outputs, pieces, node[0], sizes, count, axis)


def pieces(x: Tensor, sizes: tuple[int, ...] | None, count: int, axis: int) -> tuple[Tensor, ...]:
    """Cut along an axis into ``sizes``, or into ``count`` pieces of one size."""
    if sizes is None:
        size = -(-x.shape[axis] // count)
        return torch.split(x, size, axis)
    return torch.split(x, list(sizes), axis)


@operator("Slice")
def slice_attributes(node: Node) -> Value:
    """Cut a range out of each axis; the ranges are attributes."""
    starts, ends = node.integers("starts") or (), node.integers("ends") or ()
    axes = node.integers("axes") or tuple(range(len(starts)))
    return node.emit(cut, node[0], starts, ends, axes, (1,) * len(starts))


@operator("Slice", since=10)
def slice_inputs(node: Node) -> Value:
    """Cut a range out of each axis; steps may go backwards."""
    starts, ends = node.numbers(1), node.numbers(2)
    return node.emit(cut, node[0], starts, ends, node.numbers(3), node.numbers(4))


@modest
def cut(
    x: Tensor, starts: Numbers, ends: Numbers, axes: Numbers | None, steps: Numbers | None
) -> Tensor:
    """Cut as NumPy does, with ends clamped; a negative step walks backwards."""
    begin, stop = as_list(starts), as_list(ends)
    where = list(range(len(begin))) if axes is None else as_list(axes)
    stride = [1] * len(begin) if steps is None else as_list(steps)
    for first, last, axis, step in zip(begin, stop, where, stride, strict=True):
        low, high, step = slice(first, last, step).indices(x.shape[axis])
        if step > 0:
            whole = low == 0 and high == x.shape[axis] and step == 1
            index = (slice(None),) * (axis % x.dim()) + (slice(low, max(low, high), step),)
            x = x if whole else x[index]
        else:
            places = torch.arange(low, min(low, high), step, device=x.device)
            x = x.index_select(axis, places)
    return x


@operator("Expand", since=8)
def expand(node: Node) -> Value:
    """Repeat axes of size one until the shape broadcasts to the given one."""
    return node.emit(expanded, node[0], node.numbers(1))


def expanded(x: Tensor, shape: Numbers) -> Tensor:
    """Broadcast both ways: a 1 in ``shape`` keeps the size of ``x``."""
    return x.expand(broadcast_shape(x.shape, as_list(shape)))


@operator("Tile", since=6)
def tile(node: Node) -> Value:
    """Repeat along each axis."""
    return node.emit(tiled, node[0], node.numbers(1))


def tiled(x: Tensor, repeats: Numbers) -> Tensor:
    """Repeat along each axis."""
    return x.repeat(as_list(repeats))


@operator("DepthToSpace")
def depth_to_space(node: Node) -> Value:
    """Move channels into blocks of pixels."""
    deep = node.choice("mode", "DCR", "CRD") == "DCR"
    return node.emit(channels_to_blocks, node[0], node.integer("blocksize", 1), deep)


def channels_to_blocks(x: Tensor, block: int, depth_first: bool) -> Tensor:
    """Spread channels over ``block`` x ``block`` pixels."""
    n, channels, height, width = x.shape
    rest = channels // block**2
    if depth_first:
        cells = x.reshape(n, block, block, rest, height, width).permute(0, 3, 4, 1, 5, 2)
    else:
        cells = x.reshape(n, rest, block, block, height, width).permute(0, 1, 4, 2, 5, 3)
    return cells.reshape(n, rest, height * block, width * block)


@operator("SpaceToDepth")
def space_to_depth(node: Node) -> Value:
    """Move blocks of pixels into channels."""
    return node.emit(blocks_to_channels, node[0], node.integer("blocksize", 1))


def blocks_to_channels(x: Tensor, block: int) -> Tensor:
    """Gather ``block`` x ``block`` pixels into channels."""
    n, channels, height, width = x.shape
    cells = x.reshape(n, channels, height // block, block, width // block, block)
    ordered = cells.permute(0, 3, 5, 1, 2, 4)
    return ordered.reshape(n, channels * block**2, height // block, width // block)
