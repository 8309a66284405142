"""TensorFlow's operators that reduce, pad, join and reorder axes, as ONNX nodes."""

from __future__ import annotations

from onnxfr.errors import UnreadableModel, UnsupportedModel
from onnxfr.exporters import _layers as layers
from onnxfr.exporters._graph_writer import GraphWriter
from onnxfr.exporters._tfjs_values import (
    TO_FIRST,
    Node,
    Operand,
    Operands,
    Value,
    computed,
    stored,
    writes,
)

_REDUCE = {"Mean": "ReduceMean", "Max": "ReduceMax", "Sum": "ReduceSum"}


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


@writes("Reshape")
def _reshape(graph: GraphWriter, node: Node, operands: Operands) -> Operand:
    x = computed(node, operands).plain(graph)
    shape = [int(side) for side in stored(node, operands, 1).reshape(-1)]
    if len(shape) == 2 and shape[0] in (-1, 1):
        return Value(layers.flatten(graph, x.name))
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
