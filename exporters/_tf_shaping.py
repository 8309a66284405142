"""TensorFlow's operators that reduce, pad, join and reorder axes, as ONNX nodes."""

from __future__ import annotations

import math

import numpy as np

from onnxfr.errors import UnreadableModel, UnsupportedModel
from onnxfr.exporters import _layers as layers
from onnxfr.exporters._graph_writer import GraphWriter
from onnxfr.exporters._tf_folding import slices
from onnxfr.exporters._tf_values import (
    BATCH,
    TO_FIRST,
    Node,
    Operand,
    Operands,
    Value,
    computed,
    stored,
    writes,
)

_REDUCE = {"Mean": "ReduceMean", "Max": "ReduceMax", "Min": "ReduceMin", "Sum": "ReduceSum"}


@writes(*_REDUCE)
def _reduce(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    x = computed(node, operands)
    rank = len(graph.shape(x.name))
    keep = node.flag("keep_dims")
    asked = [int(axis) % rank for axis in stored(node, operands, 1).reshape(-1)]
    stays_turned = x.turned and (keep or sorted(asked) != [1, 2])
    if stays_turned and not keep:
        x, stays_turned = x.plain(graph), False
    axes = sorted(TO_FIRST.index(axis) for axis in asked) if x.turned else sorted(asked)
    settings = {"keepdims": int(keep)}
    if node.op == "Sum":
        answer = graph.add("ReduceSum", [x.name, graph.integers(axes)], settings, node.name)
    else:
        answer = graph.add(_REDUCE[node.op], [x.name], {"axes": axes, **settings}, node.name)
    return Value(answer, stays_turned)


@writes("Pad", "PadV2", "MirrorPad")
def _pad(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    x = computed(node, operands)
    amounts = stored(node, operands, 1)
    rank = len(graph.shape(x.name))
    if amounts.shape != (rank, 2) or amounts.min(initial=0) < 0 or amounts.max(initial=0) > 4096:
        raise UnreadableModel(f"{node.op} {node.name!r} pads by {amounts.tolist()}")
    ordered = amounts[list(TO_FIRST)] if x.turned else amounts
    mode = "constant"
    if node.op == "MirrorPad":
        mode = "reflect"
        if node.attributes.get("mode") != "REFLECT":
            raise UnsupportedModel(f"MirrorPad {node.name!r} repeats the edge")
    inputs = [x.name, graph.integers([int(v) for v in ordered.T.reshape(-1)])]
    if node.op == "PadV2":
        inputs.append(graph.weight(stored(node, operands, 2).reshape(())))
    return Value(graph.add("Pad", inputs, {"mode": mode}, node.name), x.turned)


@writes("Shape")
def _shape(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    x = computed(node, operands)
    sides = graph.sides(x.name)
    ordered = (*sides[1:], sides[0]) if x.turned else sides
    return np.asarray([BATCH, *ordered], dtype=np.int64)


@writes("Reshape")
def _reshape(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    x = computed(node, operands).plain(graph)
    asked = [int(side) for side in stored(node, operands, 1).reshape(-1)]
    shape = [-1 if side == BATCH else side for side in asked]
    if min(shape, default=0) < -1 or (BATCH in asked[1:]):
        raise UnsupportedModel(f"Reshape {node.name!r} mixes the pictures of a batch: {shape}")
    whole = math.prod(graph.sides(x.name))
    if len(shape) == 2 and shape[0] in (-1, 1) and shape[1] in (-1, whole):
        return Value(layers.flatten(graph, x.name))
    if BATCH in asked and -1 in asked:
        rest = math.prod(side for side in shape if side != -1)
        shape[asked.index(-1)] = whole // max(1, rest)
    if shape and shape[0] == 1:
        shape[0] = -1 if -1 not in shape else 1
    return Value(graph.add("Reshape", [x.name, graph.integers(shape)], name=node.name))


@writes("Flatten")
def _flatten(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    return Value(layers.flatten(graph, computed(node, operands).plain(graph).name))


@writes("Squeeze")
def _squeeze(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    x = computed(node, operands).plain(graph)
    shape = graph.shape(x.name)
    asked = node.attributes.get("squeeze_dims") or [k for k, s in enumerate(shape) if s == 1]
    axes = [int(axis) % len(shape) for axis in asked]
    return Value(graph.add("Squeeze", [x.name, graph.integers(axes)], name=node.name))


@writes("ExpandDims")
def _expand(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    x = computed(node, operands).plain(graph)
    axes = [int(v) for v in stored(node, operands, 1).reshape(-1)]
    return Value(graph.add("Unsqueeze", [x.name, graph.integers(axes)], name=node.name))


@writes("Transpose")
def _transpose(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    x = computed(node, operands).plain(graph)
    axes = [int(v) for v in stored(node, operands, 1).reshape(-1)]
    return Value(graph.add("Transpose", [x.name], {"perm": axes}, node.name))


@writes("ConcatV2")
def _concat(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    values = [computed(node, operands, k) for k in range(len(operands) - 1)]
    if not values:
        raise UnreadableModel(f"ConcatV2 {node.name!r} has no inputs")
    axis = int(stored(node, operands, len(operands) - 1).reshape(-1)[0])
    if all(value.turned for value in values):
        names = [value.name for value in values]
        place = {"axis": TO_FIRST.index(axis % 4)}
        return Value(graph.add("Concat", names, place, node.name), True)
    names = [value.plain(graph).name for value in values]
    return Value(graph.add("Concat", names, {"axis": axis}, node.name))


@writes("Split", "SplitV")
def _split(graph: GraphWriter, node: Node, operands: Operands) -> tuple[Operand, ...]:
    whole, place = (1, 0) if node.op == "Split" else (0, 2)
    x = computed(node, operands, whole)
    axis = int(stored(node, operands, place).reshape(-1)[0]) % len(graph.shape(x.name))
    axis = TO_FIRST.index(axis) if x.turned else axis
    if axis == 0:
        raise UnsupportedModel(f"{node.op} {node.name!r} parts the pictures of a batch")
    side = graph.sides(x.name)[axis - 1]
    count = int(node.attributes.get("num_split") or 1)
    sizes = [side // count] * count if 0 < count <= side else []
    if node.op == "SplitV":
        sizes = [int(size) for size in stored(node, operands, 1).reshape(-1)]
        sizes = [side - sum(sizes) - 1 if size == -1 else size for size in sizes]
    if sum(sizes) != side or min(sizes) < 1:
        raise UnreadableModel(f"{node.op} {node.name!r} parts {side} into {sizes[:9]}")
    ends = np.cumsum(sizes).tolist()
    parts = zip([0, *ends], ends, strict=False)
    return tuple(_cut(graph, x, axis, first, last, node.name) for first, last in parts)


def _cut(graph: GraphWriter, x: Value, axis: int, first: int, last: int, name: str) -> Value:
    limits = [graph.integers([number]) for number in (first, last, axis)]
    return Value(graph.add("Slice", [x.name, *limits], name=name), x.turned)


@writes("StridedSlice")
def _strided(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    """Cut along axes; every other kind of slice belongs to code around a network."""
    x = computed(node, operands)
    shape = graph.shape(x.name)
    order = TO_FIRST if x.turned else tuple(range(len(shape)))
    for axis, cut in enumerate(slices(node, operands)):
        if not isinstance(cut, slice) or (cut.step or 1) < 1:
            raise UnsupportedModel(f"StridedSlice {node.name!r} drops or turns axes")
        if cut == slice(None, None, 1):
            continue
        place = order.index(axis)
        if place == 0 or axis >= len(shape):
            raise UnsupportedModel(f"StridedSlice {node.name!r} picks pictures of a batch")
        first, last, step = cut.indices(graph.sides(x.name)[place - 1])
        limits = [graph.integers([number]) for number in (first, last, place, step)]
        x = Value(graph.add("Slice", [x.name, *limits], name=node.name), x.turned)
    return x
